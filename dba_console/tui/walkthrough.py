"""The walkthrough of a run: lays out the state the agent sent last; keys scroll it or send requests to the agent."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from dba_console.runbooks.run_view import ENDED_STATES, RunTable
from dba_console.runbooks.walkthrough_layout import PANES, LaidOutLines, Pane, ViewOptions, panel_lines, walkthrough
from dba_console.tui.keys import ScreenName
from dba_console.tui.known_runs import KnownRun, KnownRuns
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.tui.terminal import with_idle_time
from dba_console.watch.drawing.overview import FrameWithHistory, panel_title, title_rule
from dba_console.watch.drawing.overview import panel_lines as overview_panel_lines
from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows this console has requested, until the agent confirms them."""

    preview: tuple[str, int]
    """The preview, and its serial number."""
    refusal_count: int
    """Number of refusals before the request: if it grows, this request may have been refused."""
    chosen: tuple[bool, ...]


class WalkthroughView(ScrolledPage):
    """One run. It follows the newest output until the operator scrolls; at the end of a page it follows again."""

    where: ScreenName = "walkthrough"

    def __init__(self, run: str, runs: KnownRuns) -> None:
        super().__init__()
        self.run = run
        self._runs = runs
        self._pane: Pane = "step"
        self._scrolled: int | None = None
        self._block = ""
        self._row: int | None = None
        """The selected row, of rows that can be chosen."""
        self._choice: RowChoice | None = None

    @property
    def known(self) -> KnownRun | None:
        return self._runs.get(self.run)

    @property
    def hints(self) -> tuple[str, ...]:
        known = self.known
        view = None if known is None else known.view
        if known is None or view is None:
            return ("back", "help", "quit")
        if view.state in ENDED_STATES:
            return ("back", "pane", "help", "quit")
        if view.state == "interrupted":
            return ("back", "resume", "abort", "pane", "help", "quit")
        if not known.yours:
            return ("back", *(("answer",) if known.may_answer else ()), "take", "pane", "help", "quit")
        return ("back", *_driver_hints(known), "pane", "abort", "copy", "help", "quit")

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        known = self.known
        if known is None or known.view is None:
            title = "The run" if known is None else known.summary.title
            status_text = "this run is no longer known" if known is None else "waiting for the agent …"
            return [
                fit_line(title_rule(line(Span(title, "title")), width), width),
                line(Span(f" {status_text}", "dim")),
            ]
        view = known.view
        if view.block != self._block:
            self._block, self._scrolled = view.block, None if self._pane in ("step", "whole") else self._scrolled
        table = self.selectable_rows
        self._row = None if table is None or self._row is None else min(self._row, len(table.rows) - 1)
        showing = ViewOptions(
            self._pane, self._scrolled, known.yours, known.may_answer or view.question is None, known.why_not,
            known.dropped, self._row,
        )  # fmt: skip
        view = view if table is None else structs.replace(view, table=table)
        if scene.live and not known.yours:
            view = structs.replace(view, driver=with_idle_time(view.driver))
        panels = panel_lines(scene.frame, scene.history, view.panels, width)
        below = overview_lines(scene, width, height)
        laid_out = walkthrough(view, known.output, panels, showing, width, height - len(below))
        self._store_scroll(laid_out)
        return [*laid_out.lines, *below]

    def _store_scroll(self, laid: LaidOutLines) -> None:
        self._top, self._max_top, self._page_height = laid.top, laid.most, laid.page

    # Rows that can be chosen

    @property
    def selectable_rows(self) -> RunTable | None:
        """The rows of which some can be excluded now, as this console last requested them; None if none can. They stay
        selectable between a choice and the repeated question.
        """
        known = self.known
        view = None if known is None else known.view
        table = None if view is None else view.table
        if known is None or view is None or table is None or not table.chosen or not table.rows or not known.yours:
            self._choice = None
            return None
        choice = self._choice
        if choice is not None and (choice.preview, choice.refusal_count) != (
            (table.block, table.look),
            known.refusal_count,
        ):
            choice = self._choice = None
        if choice is not None and choice.chosen == table.chosen and view.question is not None:
            choice = self._choice = None  # confirmed
        if choice is None and not (view.question is not None and view.question.rows):
            return None
        return table if choice is None else structs.replace(table, chosen=choice.chosen)

    def tick(self, known: KnownRun, table: RunTable) -> tuple[int, ...] | None:
        """Choose or exclude the selected row; return the indexes of all chosen rows.

        None if no row is selected yet: of several no row is excluded before the operator has seen it selected.
        """
        if self._row is None and table.total > 1:
            self.do_row_down()
            return None
        row, self._scrolled = self._row or 0, None
        chosen = tuple(one is not (index == row) for index, one in enumerate(table.chosen))
        self._choice = RowChoice((table.block, table.look), known.refusal_count, chosen)
        self._row = min(row + 1, len(table.rows) - 1)
        return tuple(index for index, one in enumerate(chosen) if one)

    def copied_text(self) -> str:
        """The command or statement of the current block; of an ended run its directory."""
        view = None if self.known is None else self.known.view
        if view is None or view.state in ENDED_STATES:
            return "" if view is None else view.directory
        return next((block.exact for block in view.blocks if block.id == view.block), "")

    # Keys

    def do_row_up(self) -> None:
        self._move(-1)

    def do_row_down(self) -> None:
        self._move(1)

    def _move(self, step: int) -> None:
        """Select the next row, if rows can be chosen; beyond the first and the last one scroll the text."""
        table = self.selectable_rows if self._pane in ("step", "whole") else None
        row = 0 if self._row is None else self._row + step
        if table is None or not 0 <= row < len(table.rows) or (self._row is None and step < 0):
            self.wheel(step)
            return
        self._row, self._scrolled = row, None

    def do_pane(self) -> None:
        """Show the next pane on the whole screen."""
        self._pane = PANES[(PANES.index(self._pane) + 1) % len(PANES)]
        self._scrolled = None

    def do_top(self) -> None:
        self._scrolled = 0

    def wheel(self, rows: int) -> None:
        super().wheel(rows)
        self._scrolled = None if self._pane == "output" and self._top == self._max_top else self._top


MIN_WIDTH, MIN_HEIGHT = 118, 40
"""From this size on findings and charts are shown below the run."""


def overview_lines(scene: Scene, width: int, height: int) -> list[Line]:
    """Return findings and charts of the last minutes, to see what a step changes; none on a smaller screen."""
    if scene.frame is None or width < MIN_WIDTH or height < MIN_HEIGHT:
        return []
    shown = FrameWithHistory(scene.frame, scene.history)
    lines: list[Line] = []
    for name, rows in (("latest", 4), ("charts", min(17, max(11, height - 32)))):
        lines.append(fit_line(title_rule(panel_title(name, shown, width - 1), width), width))
        lines += [fit_line((Span(" "), *one), width) for one in overview_panel_lines(name, shown, width - 1, rows)]
    return lines


def _driver_hints(known: KnownRun) -> tuple[str, ...]:
    """Return the actions of the console that controls the run, the most likely first."""
    view = known.view
    question = None if view is None else view.question
    answer = () if question is None else ("answer",)
    tick = ("tick",) if question is not None and question.rows else ()
    stop = ("stop",) if view is not None and view.can_stop else ()
    return (*answer, *tick, *stop, "hold", "skip")
