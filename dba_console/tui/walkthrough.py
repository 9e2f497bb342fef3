"""The walkthrough of a run on the screen: lays out what the agent told last; keys scroll it, actions ask the agent."""

from __future__ import annotations

from dba_console.panels.cells import Line, Span, fit_line, line
from dba_console.panels.text import rule
from dba_console.plans.view import ENDED
from dba_console.tui.keys import Where
from dba_console.tui.pages import Page
from dba_console.tui.runs import KnownRun, Runs
from dba_console.tui.view import Scene
from dba_console.walkthrough.layout import PANES, Laid, Pane, Showing, walkthrough
from dba_console.walkthrough.panel_lines import panel_lines


class WalkthroughView(Page):
    """One run. It follows what goes on until the operator scrolls; at the end of a page it follows again."""

    where: Where = "walkthrough"

    def __init__(self, run: str, runs: Runs) -> None:
        super().__init__()
        self.run = run
        self._runs = runs
        self._pane: Pane = "step"
        self._scrolled: int | None = None
        self._block = ""

    @property
    def known(self) -> KnownRun | None:
        return self._runs.get(self.run)

    @property
    def hints(self) -> tuple[str, ...]:
        known = self.known
        view = None if known is None else known.view
        if known is None or view is None:
            return ("back", "help", "quit")
        if view.state in ENDED:
            return ("back", "pane", "help", "quit")
        if view.state == "interrupted":
            return ("back", "resume", "abort", "pane", "help", "quit")
        if not known.yours:
            return ("back", *(("answer",) if known.may_answer else ()), "take", "pane", "help", "quit")
        return ("back", *_of_driver(known), "pane", "abort", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        known = self.known
        if known is None or known.view is None:
            title = "The run" if known is None else known.told.title
            words = "nothing is known of this run any more" if known is None else "asking the agent for it …"
            return [fit_line(rule(line(Span(title, "title")), width), width), line(Span(f" {words}", "dim"))]
        view = known.view
        if view.block != self._block:
            self._block, self._scrolled = view.block, None if self._pane in ("step", "whole") else self._scrolled
        showing = Showing(
            self._pane, self._scrolled, known.yours, known.may_answer or view.question is None, known.why_not,
            known.dropped,
        )  # fmt: skip
        panels = panel_lines(scene.frame, scene.history, view.panels, width)
        laid = walkthrough(view, known.output, panels, showing, width, height)
        self._keep(laid)
        return laid.lines

    def _keep(self, laid: Laid) -> None:
        self._top, self._most, self._page = laid.top, laid.most, laid.page

    # Keys

    def do_pane(self) -> None:
        """Give another part the screen."""
        self._pane = PANES[(PANES.index(self._pane) + 1) % len(PANES)]
        self._scrolled = None

    def do_top(self) -> None:
        self._scrolled = 0

    def wheel(self, rows: int) -> None:
        super().wheel(rows)
        self._scrolled = None if self._pane == "output" and self._top == self._most else self._top


def _of_driver(known: KnownRun) -> tuple[str, ...]:
    """What who drives can do now, the most likely first."""
    view = known.view
    question = None if view is None else view.question
    answer = () if question is None else ("read",) if question.kind == "ack" else ("answer",)
    stop = ("stop",) if view is not None and view.can_stop else ()
    return (*answer, *stop, "hold", "skip")
