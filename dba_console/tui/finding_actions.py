"""What keys do about findings: open one, say that it is known, keep it quiet. The agent does it; the screen asks."""

from __future__ import annotations

from dba_console.agent.protocol import Acknowledge, Silence
from dba_console.errors import UsageError
from dba_console.frames.model import Finding
from dba_console.tui.feed import Feed
from dba_console.tui.findings import find_finding, most_urgent
from dba_console.tui.prompt import Prompt
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack
from dba_console.units import parse_duration


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
