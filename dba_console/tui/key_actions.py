"""What keys do, by the registry's names. A view's own meaning of an action goes before the one here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from dba_console.tui.backend_actions import BackendActions
from dba_console.tui.feed import Feed
from dba_console.tui.finding_actions import FindingActions
from dba_console.tui.job_actions import JobActions
from dba_console.tui.job_history_loader import JobHistoryLoader
from dba_console.tui.keys import Key
from dba_console.tui.panel_detail import DetailView
from dba_console.tui.panel_keys import panel_of_key
from dba_console.tui.pending_reverts_actions import PendingRevertsActions
from dba_console.tui.prompt import Prompt
from dba_console.tui.runbook_loader import RunbookLoader
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack


class KeyActions(PendingRevertsActions, BackendActions, FindingActions, JobActions):
    """Methods `do_ACTION`; `act` finds the one of a key."""

    def __init__(
        self,
        view_stack: ViewStack,
        navigator: TimeNavigator,
        feed: Feed,
        runbook_loader: RunbookLoader,
        job_history_loader: JobHistoryLoader,
        *,
        leave: Callable[[], None],
        palette: Callable[[], None],
        suspend: Callable[[], None],
    ) -> None:
        super().__init__(view_stack, navigator, feed)
        self._runbook_loader, self._job_history_loader = runbook_loader, job_history_loader
        self.do_quit = leave
        self.do_palette = palette
        self.do_suspend = suspend

    def method(self, action: str) -> Callable[[], None] | None:
        """What the action does on the view shown, None where it does nothing there."""
        if action.startswith("panel_"):
            return lambda: self._open_by_key(action.removeprefix("panel_"))
        found: Callable[[], None] | None = getattr(self._view_stack.view, f"do_{action}", None)
        return found or getattr(self, f"do_{action}", None)

    def perform(self, key: Key) -> None:
        """Do what the key does here."""
        method = self.method(key.action)
        if method is not None:
            method()

    # Views

    def _open_by_key(self, key: str) -> None:
        name = panel_of_key(key)
        if name is not None:
            self._view_stack.open_panel(name)

    def do_open(self) -> None:
        chosen = self._view_stack.overview.chosen
        if chosen is None:
            self._navigator.notice = "choose a panel with tab, or open one by its number"
        else:
            self._view_stack.open_panel(chosen)

    def do_back(self) -> None:
        self._report_run_continues()
        self._view_stack.back()

    def do_help(self) -> None:
        self._view_stack.show_help()

    def do_filter(self) -> None:
        view = self._view_stack.view
        if isinstance(view, DetailView) and view.grid is not None:
            self._view_stack.prompt = Prompt("filter", view.set_filter, view.set_filter, view.grid.filter)

    # Time

    def do_space(self) -> None:
        self._navigator.toggle_pause()

    def do_step_back(self) -> None:
        self._navigator.step(-1)

    def do_step_on(self) -> None:
        self._navigator.step(1)

    def do_minute_back(self) -> None:
        self._navigator.step_minute(-1)

    def do_minute_on(self) -> None:
        self._navigator.step_minute(1)

    def do_sign_back(self) -> None:
        self._navigator.go_to_notable(-1)

    def do_sign_on(self) -> None:
        self._navigator.go_to_notable(1)

    def do_go(self) -> None:
        self._view_stack.prompt = Prompt("go to (14:53:07, -10m, mark:TEXT)", self._go)

    def _go(self, text: str) -> None:
        if text.strip():
            self._navigator.go_to_time(text.strip())

    def do_first(self) -> None:
        self._navigator.go_to_start()

    def do_top(self) -> None:
        self._navigator.go_to_start()

    def do_live(self) -> None:
        self._navigator.go_live()

    def do_faster(self) -> None:
        self._navigator.faster()

    def do_slower(self) -> None:
        self._navigator.slower()

    # The record

    def do_mark(self) -> None:
        self._ask("mark", "mark this moment (enter alone will do)")

    def do_note(self) -> None:
        self._ask("note", "note" if self._navigator.cursor.live else "note about the moment shown")

    def _ask(self, kind: Literal["mark", "note"], question: str) -> None:
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
            return
        # The moment is the one of the key, however long the text takes to write.
        occurred_us = self._navigator.shown_us
        self._view_stack.prompt = Prompt(question, lambda text: self._record(kind, text.strip(), occurred_us))

    def _record(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> None:
        if kind == "note" and not text:
            return
        why = self._feed.send(kind, text, occurred_us)
        self._navigator.notice = why or f"{kind} sent …"
        if why is None:
            self._navigator.awaited_text = text
