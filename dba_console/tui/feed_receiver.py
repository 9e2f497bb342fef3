"""What the feed leaves, taken in: samples and events into the present, sentences to the operator, the link's state.

Used by the screen's thread alone.
"""

from __future__ import annotations

from dba_console.agent.protocol import RunLines, RunRefused, RunViewMessage
from dba_console.clock import Clock
from dba_console.errors import ConsoleError
from dba_console.samples.event import Event
from dba_console.tui.feed import (
    AgentConnectionChanged,
    AgentConnectionState,
    Arrival,
    EventArrived,
    NoticeArrived,
    SampleArrived,
)
from dba_console.tui.job_history_loader import JobHistoryArrived
from dba_console.tui.known_runs import KnownRuns
from dba_console.tui.live_state import LiveState
from dba_console.tui.recorded_runs import RecordedRunsArrived
from dba_console.tui.runbook_loader import RunbooksArrived

_FINDING_MARK_EVENTS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


class FeedReceiver:
    """The present, and how well it is known.

    `notice` is the newest sentence for the operator, until the screen takes it away; `link` says how the feed stands,
    with `link_text` the sentence why it is lost.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.live_state = LiveState()
        self.runs = KnownRuns()
        self.runbooks: RunbooksArrived | None = None
        """The runbooks there are; None until they have been read."""
        self.job_history: JobHistoryArrived | None = None
        """The history of dumps and restores; None until it has been read."""
        self.notice: str | None = None
        self.connection_state: AgentConnectionState = "connecting"
        self.connection_text = ""
        self.failure: ConsoleError | None = None
        """Why there is no console to open at all."""
        self.awaited_text: str | None = None
        """The text of a mark or note sent and not yet seen among the events."""
        self.sent_notice: str | None = None
        """What the screen said when it asked something of a run: it has done its service once the agent answers."""
        self.awaited_finding: str | None = None
        """The finding of which something was said, until the agent tells of it."""
        self.last_sample_us: int | None = None
        """Monotonic time of the newest sample's arrival."""

    @property
    def silent_s(self) -> float | None:
        """Seconds since the agent was last heard of; None where there is none, or nothing came yet."""
        return None if self.last_sample_us is None else (self._clock.mono_us() - self.last_sample_us) / 1e6

    def receive(self, arrival: Arrival) -> bool:
        """Take in one thing. True where the present is another one now."""
        match arrival:
            case SampleArrived(data):
                self.live_state.add_sample(data)
                self.last_sample_us = self._clock.mono_us()
                return True
            case EventArrived(event):
                self.live_state.add_event(event)
                self.runs.add_event(event)
                self._confirm_recorded(event)
                return True
            case NoticeArrived(text):
                self.notice = text
            case RunbooksArrived():
                self.runbooks = arrival
            case JobHistoryArrived():
                self.job_history = arrival
            case RecordedRunsArrived(runs):
                self.runs.recorded = runs
            case RunViewMessage() | RunLines() | RunRefused():
                self.runs.receive(arrival)
                self._take_run_answer()
            case AgentConnectionChanged(state, text, error, session):
                self.connection_state, self.connection_text = state, text
                self.failure = error or self.failure
                if session is not None:
                    self.runs.attached(session.runs)
        return False

    def _take_run_answer(self) -> None:
        """The agent spoke of a run: what was sent has arrived, or is refused with a sentence."""
        refused = self.runs.take_refusal()
        if refused is not None:
            self.notice = refused
        elif self.sent_notice is not None and self.notice == self.sent_notice:
            self.notice = self.sent_notice = None

    def _confirm_recorded(self, event: Event) -> None:
        """Say that the operator's own mark or note is recorded, once the agent tells of it."""
        if (
            self.awaited_text is not None
            and event.kind in ("mark", "note")
            and event.text == (self.awaited_text or "mark")
        ):
            self.notice, self.awaited_text = f"{event.kind} recorded: {event.text}", None
        elif event.kind in _FINDING_MARK_EVENTS and event.details.get("id") == self.awaited_finding:
            self.notice, self.awaited_finding = event.text, None
