"""The actions behind the keys, by the names in keys.py: a method `do_NAME` of one of these classes, in the order of
`KeyActions`. A view's own method of the same name takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from dba_console.agent.protocol import Acknowledge, RunBegin, Silence
from dba_console.core.errors import UsageError
from dba_console.core.sanitize import clean
from dba_console.core.units import parse_duration
from dba_console.jobs.history.duration_trend import PastRuns, TargetJobHistory
from dba_console.jobs.pages.history_page import job_key
from dba_console.tui.comparison import ComparisonView
from dba_console.tui.feed import Feed, NoticeArrived
from dba_console.tui.findings import (
    REVERT_RUNBOOK,
    PendingRevertsView,
    find_finding,
    most_urgent,
    pending_reverts_finding,
)
from dba_console.tui.jobs import AllJobsView, JobHistoryTablesView, JobPage, JobsView
from dba_console.tui.keys import Key, panel_of_key
from dba_console.tui.live_state import Moment
from dba_console.tui.loaders import BackgroundLoader, RunbooksArrived, write_postmortem
from dba_console.tui.panel_detail import BackendsView, DetailView
from dba_console.tui.prompt import Prompt
from dba_console.tui.run_keys import AgentRequests, RunActions, RunbookActions
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack
from dba_console.watch.drawing.time_formats import date_and_time

Common = tuple[ViewStack, TimeNavigator, Feed, BackgroundLoader[RunbooksArrived]]
"""What each of the classes below acts on, as `AgentRequests` takes it."""


class _WithRunbooks(AgentRequests):
    """Actions that start a run."""

    def __init__(self, runbooks: RunbookActions, *common: *Common) -> None:
        super().__init__(*common)
        self._runbooks = runbooks


# Cancel and terminate from the tables of sessions and locks: a run of one step on the ticked rows. The screen sends
# only pid and start of each backend; the agent reads them again and shows the set for confirmation.


class BackendActions(_WithRunbooks):
    """Cancel and terminate backends."""

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
            self._navigator.notice = "no session selected: ↑↓ selects one, x chooses several"
            return
        from dba_console.runbooks.single_action import signal_plan  # loaded when it is used

        try:
            plan = signal_plan(verb, rows)
        except UsageError as error:
            self._navigator.notice = "; ".join(filter(None, (error.message, error.hint)))
            return
        view.untick()
        self._runbooks.request_run(RunBegin(text="", source="screen", adhoc=msgspec.json.encode(plan)))
        if gone and self._feed.refusal is None:
            self._navigator.notice = f"sent to the agent; {gone} of the chosen sessions have ended and are left out"


# Findings: open one, acknowledge it, silence it. The agent stores it; the screen sends the request.


class FindingActions(_WithRunbooks):
    """Open, acknowledge and silence findings, in any view that shows one."""

    @property
    def _finding(self) -> str | None:
        """The finding the keys act on: the one shown or selected; on the overview the most urgent one."""
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
            self._navigator.notice = f"no runbook for {found.id}" + (f": {found.advice}" if found.advice else "")
        else:
            self._runbooks.open_runbook(found.runbook, found)

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
        """The finding that can be acknowledged or silenced now; None, with a notice of the reason, if it cannot."""
        if self._may_not_act():
            return None
        if self._finding is None:
            self._navigator.notice = "no finding is open"
        return self._finding

    def _silence(self, finding: str, text: str) -> None:
        span, _, note = text.strip().partition(" ")
        if not span:
            return
        try:
            seconds = parse_duration(span)
        except UsageError as error:
            self._navigator.notice = f"{error.message}: {error.hint}"
            return
        if seconds <= 0:
            self._navigator.notice = "the time must be greater than zero"
            return
        self._request(Silence(finding=finding, seconds=seconds, note=note.strip()))

    def do_postmortem(self) -> None:
        """Write the postmortem in the background; a notice names its directory.

        On the overview with nothing worse than an info finding the incident is over: the report is of the session.
        """
        directory, finding, at_us = self._feed.session.directory, self._finding, self._navigator.shown_us
        first = most_urgent(self._navigator.frame())
        if self._view_stack.view is self._view_stack.overview and first is not None and first.severity == "info":
            finding = None
        if directory is None:
            self._navigator.notice = "nothing is recorded, so there is nothing to report"
            return
        self._navigator.notice = "writing the postmortem …"
        BackgroundLoader(
            "recording", lambda: NoticeArrived(write_postmortem(directory, finding, at_us)), NoticeArrived,
            self._feed.mailbox.put,
        ).request_read()  # fmt: skip

    def _request(self, request: Acknowledge | Silence) -> None:
        why = self._feed.send_request(request)
        self._navigator.notice = why or "sent …"
        if why is None:
            self._navigator.awaited_finding = request.finding


# Dumps and restores: open one, show the history of all or of one.


class JobActions(AgentRequests):
    """Open jobs and their history, in any view that shows them."""

    def __init__(self, job_history_loader: BackgroundLoader[TargetJobHistory], *common: *Common) -> None:
        super().__init__(*common)
        self._job_history_loader = job_history_loader

    def do_job(self) -> None:
        view = self._view_stack.view
        if isinstance(view, JobsView):
            row = view.chosen
            if row is None:
                self._navigator.notice = "no operation is running"
            else:
                self._view_stack.show_job(row)

    def do_past(self) -> None:
        """Show the history of all jobs; on the page of a job, its runs."""
        self._job_history_loader.request_read()
        view = self._view_stack.view
        if isinstance(view, JobPage):
            row = view.row
            job = PastRuns(kind=row.kind, database=row.database, user=row.user, format=row.format)
            self._view_stack.show_job_runs(job_key(job))
        elif not isinstance(view, JobHistoryTablesView):
            self._view_stack.show_job_history()

    def do_past_runs(self) -> None:
        view = self._view_stack.view
        if isinstance(view, AllJobsView) and view.selected is not None:
            self._view_stack.show_job_runs(view.selected)

    def reread_job_history(self) -> None:
        """Read the history again when it is old and shown."""
        if not isinstance(self._view_stack.view, JobHistoryTablesView):
            return
        if self._navigator.job_history is None:
            self._job_history_loader.request_read()  # another host is shown
        else:
            self._job_history_loader.reread_if_old()


# Offered first: revert the settings that runs left changed.

OFFER_PERIOD_US = 60_000_000
"""The offer opens automatically only this long after the first frame: an agent that has just started needs time to
read; later the screen would come between the operator and a key."""


class PendingRevertsActions(_WithRunbooks):
    """Offer pending reverts once per console; the finding stays."""

    _first_us: int | None = None
    _offered = False
    _revert_requested = False
    """The runbook is being read and starts when it is there."""

    def offer_pending_reverts(self) -> bool:
        """Show the pending reverts, if there are any and the operator is still on the overview. True if shown."""
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

    def start_awaited_revert(self) -> None:
        """Start the revert that was requested before its runbook was read."""
        if self._revert_requested and self._navigator.runbooks is not None:
            self._revert_requested = False
            self.do_put_back()

    def do_put_back(self) -> None:
        if not isinstance(self._view_stack.view, PendingRevertsView) or self._may_not_act():
            return
        if pending_reverts_finding(self._navigator.frame()) is None:
            self._navigator.notice = "no settings left to revert"
            return
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(REVERT_RUNBOOK)
        if runbooks is None:
            self._revert_requested = True
            self._runbook_loader.request_read()
            self._navigator.notice = "reading the runbook …"
        elif runbook is None:
            self._navigator.notice = (
                f"runbook not found: {REVERT_RUNBOOK}{': ' + runbooks.problem if runbooks.problem else ''}"
            )
        else:
            self._runbooks.request_run(RunBegin(text=runbook.text, source=str(runbook.entry.path), mode="run"))


# Compare two moments: one is kept, the other is the one shown.


class ComparisonActions(AgentRequests):
    """Keep the moment shown, or compare it with the one kept before."""

    _kept: Moment | None = None
    _kept_host = 0

    def do_compare(self) -> None:
        shown, host = self._navigator.moment, self._navigator.host
        kept, self._kept_host = self._kept if self._kept_host == host else None, host
        again = isinstance(self._view_stack.view, ComparisonView)
        if shown is None:
            return
        if kept is None or again or kept.picture.wall_us == shown.picture.wall_us:
            self._kept = shown
            at = date_and_time(shown.picture.wall_us)
            self._navigator.notice = f"{at} is kept: @ at another moment shows what changed between the two"
            if again:
                self._view_stack.back()
        else:
            self._kept = None
            self._view_stack.show_comparison(kept)


MAX_COPIED = 50_000
"""Most characters to copy: terminals drop an OSC 52 sequence beyond about 100 kB."""


def copyable(text: str) -> str:
    """Return server text for the clipboard: line breaks and tabs stay, other control characters are made visible.

    >>> copyable("select 1\\n\\tfrom t\\x1b[2J ")
    'select 1\\n\\tfrom t␛[2J'
    """
    pieces = re.split("([\\n\\t])", text.strip()[:MAX_COPIED])
    return "".join(piece if piece in ("\n", "\t") else clean(piece) for piece in pieces)


class KeyActions(AgentRequests):
    """All actions: those of the screen itself, and those of each subject; `perform` calls the one of a key."""

    def __init__(
        self,
        view_stack: ViewStack,
        navigator: TimeNavigator,
        feed: Feed,
        runbook_loader: BackgroundLoader[RunbooksArrived],
        job_history_loader: BackgroundLoader[TargetJobHistory],
        *,
        leave: Callable[[], None],
        copy: Callable[[str], None],
        palette: Callable[[], None],
        suspend: Callable[[], None],
    ) -> None:
        common = (view_stack, navigator, feed, runbook_loader)
        super().__init__(*common)
        self.runbooks = RunbookActions(*common)
        self.runs = RunActions(*common)
        self.pending_reverts = PendingRevertsActions(self.runbooks, *common)
        self.jobs = JobActions(job_history_loader, *common)
        subjects = (
            self.pending_reverts,
            BackendActions(self.runbooks, *common),
            FindingActions(self.runbooks, *common),
            self.jobs,
            ComparisonActions(*common),
            self.runs,
            self.runbooks,
            self,
        )
        self.functions = {"quit": leave, "palette": palette, "suspend": suspend} | {
            name.removeprefix("do_"): getattr(subject, name)
            for subject in subjects
            for name in dir(subject)
            if name.startswith("do_")
        }
        """By the name of the action."""
        self._copy = copy

    def method(self, action: str) -> Callable[[], None] | None:
        """Return the method for an action in the current view, None if it does nothing there."""
        if action.startswith("panel_"):
            return lambda: self._open_by_key(action.removeprefix("panel_"))
        found: Callable[[], None] | None = getattr(self._view_stack.view, f"do_{action}", None)
        return found or self.functions.get(action)

    def perform(self, key: Key) -> None:
        """Run the key's action in the current view."""
        self.run(key.action)

    def run(self, action: str) -> None:
        """Run an action in the current view."""
        method = self.method(action)
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
            self._navigator.notice = "select a panel with tab, or open one by its number"
        else:
            self._view_stack.open_panel(chosen)

    def do_back(self) -> None:
        self.runs.report_run_continues()
        self._view_stack.back()

    def do_help(self) -> None:
        self._view_stack.show_help()

    def do_copy(self) -> None:
        text = copyable(self._view_stack.view.copied_text())
        if text:
            self._copy(text)
            self._navigator.notice = (
                f"{len(text)} characters sent to the terminal's clipboard, if it accepts them (OSC 52)"
            )
        else:
            self._navigator.notice = "nothing to copy here: select a row first"

    def do_filter(self) -> None:
        view = self._view_stack.view
        if isinstance(view, DetailView) and view.has_tables:
            grid = view.grid
            self._view_stack.prompt = Prompt("filter", grid.set_filter, grid.set_filter, grid.filter)

    def do_sort_by(self) -> None:
        view = self._view_stack.view
        if isinstance(view, DetailView) and view.has_tables:
            self._view_stack.prompt = Prompt("sort by column", view.grid.sort_by_name, view.grid.sort_by_name)

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

    def do_other_host(self) -> None:
        self._navigator.go_to_other_host()

    def do_live(self) -> None:
        self._navigator.go_live()

    def do_faster(self) -> None:
        self._navigator.faster()

    def do_slower(self) -> None:
        self._navigator.slower()

    # Recording

    def do_mark(self) -> None:
        self._ask("mark", "mark this moment (text optional)")

    def do_note(self) -> None:
        self._ask("note", "note" if self._navigator.cursor.live else "note on the time shown")

    def _ask(self, kind: Literal["mark", "note"], question: str) -> None:
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
            return
        # The mark gets the time of the key press, however long the text takes to type.
        occurred_us = self._navigator.shown_us
        self._view_stack.prompt = Prompt(question, lambda text: self._record(kind, text.strip(), occurred_us))

    def _record(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> None:
        if kind == "note" and not text:
            return
        why = self._feed.send(kind, text, occurred_us)
        self._navigator.notice = why or f"{kind} sent …"
        if why is None:
            self._navigator.awaited_text = text
