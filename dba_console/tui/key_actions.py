"""What keys do, by the registry's names. A view's own meaning of an action goes before the one here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from dba_console.agent.protocol import Acknowledge, RunBegin, Silence
from dba_console.core.errors import UsageError
from dba_console.core.units import parse_duration
from dba_console.jobs.panels.job_history import job_key
from dba_console.tui.feed import Feed
from dba_console.tui.findings import find_finding, most_urgent
from dba_console.tui.jobs import AllJobsView, JobHistoryTablesView, JobPage, JobsView
from dba_console.tui.keys import Key, panel_of_key
from dba_console.tui.loaders import JobHistoryLoader, RunbookLoader
from dba_console.tui.panel_detail import BackendsView, DetailView
from dba_console.tui.pending_reverts import RUNBOOK_ID, PendingRevertsView, pending_reverts_finding
from dba_console.tui.prompt import Prompt
from dba_console.tui.run_actions import RunActions, RunbookActions
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack
from dba_console.watch.frames.model import Finding
from dba_console.watch.frames.past_jobs import PastRuns

# Cancel and terminate from the tables of sessions and locks: a run of one step on the exact rows chosen.
#
# The screen names backends by pid and start and nothing else; the agent looks at them again, shows the set and asks.


class BackendActions(RunActions):
    """The actions on backends."""

    def do_cancel(self) -> None:
        self._signal("cancel")

    def do_terminate(self) -> None:
        self._signal("terminate")

    def _signal(self, verb: Literal["cancel", "terminate"]) -> None:
        view = self._view_stack.view
        if not isinstance(view, BackendsView) or self._may_not_act():
            return
        rows, gone = view.chosen_backends()
        if not rows:
            self._navigator.notice = "choose a session first: ↑↓ selects one, x ticks several"
            return
        from dba_console.runbooks.single_action import signal_plan  # loaded when it is used

        try:
            plan = signal_plan(verb, rows)
        except UsageError as error:
            self._navigator.notice = "; ".join(filter(None, (error.message, error.hint)))
            return
        view.untick()
        self.request_run(RunBegin(text="", source="screen", adhoc=msgspec.json.encode(plan)))
        if gone and self._feed.refusal is None:
            self._navigator.notice = f"asked the agent; {gone} of the ticked rows are gone and left out"


# What keys do about findings: open one, say that it is known, keep it quiet. The agent does it; the screen asks.


class FindingActions:
    """The actions of findings, for whichever view shows one."""

    def __init__(self, view_stack: ViewStack, navigator: TimeNavigator, feed: Feed) -> None:
        self._view_stack = view_stack
        self._navigator = navigator
        self._feed = feed

    @property
    def _finding(self) -> str | None:
        """The finding the keys act on: the one shown or selected, on the overview the most urgent one."""
        chosen: str | None = getattr(self._view_stack.view, "finding", None)
        if chosen is not None or self._view_stack.view is not self._view_stack.overview:
            return chosen
        first = most_urgent(self._navigator.frame())
        return None if first is None else first.id

    def do_evidence(self) -> None:
        if self._finding is not None:
            self._view_stack.show_evidence(self._finding)

    def do_runbook(self) -> None:
        frame, chosen = self._navigator.frame(), self._finding
        found = None if frame is None or chosen is None else find_finding(frame, chosen)
        if found is None:
            self._navigator.notice = "no finding is open"
        elif found.runbook is None:
            self._navigator.notice = f"no runbook answers {found.id}" + (f": {found.advice}" if found.advice else "")
        else:
            self._open_runbook(found.runbook, found)

    def _open_runbook(self, runbook_id: str, finding: Finding | None = None) -> None:
        """Show that runbook; the actions of runbooks know how."""
        raise NotImplementedError

    def do_acknowledge(self) -> None:
        if (chosen := self._finding_to_mark()) is not None:
            self._view_stack.prompt = Prompt(
                f"acknowledge {chosen}, note",
                lambda text: self._request(Acknowledge(finding=chosen, note=text.strip())),
            )

    def do_silence(self) -> None:
        if (chosen := self._finding_to_mark()) is not None:
            self._view_stack.prompt = Prompt(
                f"silence {chosen} for how long (30m, 2h, then a note)", lambda text: self._silence(chosen, text)
            )

    def do_unsilence(self) -> None:
        if (chosen := self._finding_to_mark()) is not None:
            self._request(Silence(finding=chosen, seconds=0))

    def _finding_to_mark(self) -> str | None:
        """The finding something may be said of now; why not is said."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif not self._navigator.cursor.live:
            self._navigator.notice = "this is the past: end brings you back to what is open now"
        elif self._finding is None:
            self._navigator.notice = "no finding is open"
        else:
            return self._finding
        return None

    def _silence(self, finding: str, text: str) -> None:
        span, _, note = text.strip().partition(" ")
        if not span:
            return  # nothing was asked for
        try:
            seconds = parse_duration(span)
        except UsageError as error:
            self._navigator.notice = f"{error.message}: {error.hint}"
            return
        if seconds <= 0:
            self._navigator.notice = "a silence of no time is none"
            return
        self._request(Silence(finding=finding, seconds=seconds, note=note.strip()))

    def _request(self, request: Acknowledge | Silence) -> None:
        why = self._feed.send_request(request)
        self._navigator.notice = why or "sent …"
        if why is None:
            self._navigator.awaited_finding = request.finding


# What keys do about dumps and restores: open one in full, show the history of all, or of one.


class JobActions:
    """The actions of jobs, for whichever view shows one."""

    _view_stack: ViewStack
    _navigator: TimeNavigator
    _job_history_loader: JobHistoryLoader

    def do_job(self) -> None:
        view = self._view_stack.view
        if isinstance(view, JobsView):
            row = view.chosen
            if row is None:
                self._navigator.notice = "nothing is under way"
            else:
                self._view_stack.show_job(row)

    def do_past(self) -> None:
        """The history of all; on the page of a job the runs of that one, where any are known."""
        self._job_history_loader.request_read()
        view = self._view_stack.view
        if isinstance(view, JobPage):
            row = view.row
            self._view_stack.show_job_runs(job_key(PastRuns(kind=row.kind, database=row.database, user=row.user)))
        elif not isinstance(view, JobHistoryTablesView):
            self._view_stack.show_job_history()

    def do_past_runs(self) -> None:
        view = self._view_stack.view
        if isinstance(view, AllJobsView) and view.chosen is not None:
            self._view_stack.show_job_runs(view.chosen)

    def reread_job_history(self) -> None:
        """Keep the history fresh while it is looked at."""
        if isinstance(self._view_stack.view, JobHistoryTablesView):
            self._job_history_loader.reread_if_old()


# What is offered before all else: to put back what runs have left changed.

OFFER_PERIOD_US = 60_000_000
"""After its first picture a console shows it by itself for so long: an agent that was just started has to look first.
Later it would come between the operator and a key."""


class PendingRevertsActions(RunbookActions):
    """Offered once in the life of a console; the finding stays."""

    _first_us: int | None = None
    _offered = False
    _revert_requested = False
    """The runbook is being read, to be begun."""

    def offer_pending_reverts(self) -> bool:
        """Show it, where there is something and nothing else was begun. True where it did."""
        frame = (
            self._navigator.frame() if not self._offered and self._navigator.connection_state == "attached" else None
        )
        if frame is None:
            return False
        self._first_us = frame.at_us if self._first_us is None else self._first_us
        self._offered = frame.at_us - self._first_us > OFFER_PERIOD_US
        if pending_reverts_finding(frame) is None:
            return False
        self._offered = True
        if self._view_stack.view is not self._view_stack.overview or self._view_stack.prompt is not None:
            return False
        self._runbook_loader.request_read()
        self._view_stack.show_pending_reverts()
        return True

    def open_awaited_run(self) -> bool:
        if self._revert_requested and self._navigator.runbooks is not None:
            self._revert_requested = False
            self.do_put_back()
        return super().open_awaited_run()

    def do_put_back(self) -> None:
        if not isinstance(self._view_stack.view, PendingRevertsView) or self._may_not_act():
            return
        if pending_reverts_finding(self._navigator.frame()) is None:
            self._navigator.notice = "nothing is left to be put back"
            return
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(RUNBOOK_ID)
        if runbooks is None:
            self._revert_requested = True
            self._runbook_loader.request_read()
            self._navigator.notice = "reading the runbook …"
        elif runbook is None:
            self._navigator.notice = (
                f"there is no runbook {RUNBOOK_ID}{': ' + runbooks.problem if runbooks.problem else ''}"
            )
        else:
            self.request_run(RunBegin(text=runbook.text, source=runbook.source, mode="run"))


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
