"""What the feed leaves, taken in: samples and events into the present, sentences to the operator, the link's state.

Used by the screen's thread alone.
"""

from __future__ import annotations

from dba_console.agent.protocol import RunLines, RunRefused, RunViewMessage
from dba_console.clock import Clock
from dba_console.errors import ConsoleError
from dba_console.samples.event import Event
from dba_console.tui.feed import Arrival, EventArrived, LinkChanged, LinkState, NoticeArrived, SampleArrived
from dba_console.tui.job_shelf import PastArrived
from dba_console.tui.present import Present
from dba_console.tui.recorded_runs import RunsRecorded
from dba_console.tui.runs import Runs
from dba_console.tui.shelf import BooksArrived

_SAID_OF_FINDINGS = ("finding.acknowledged", "finding.silenced", "finding.unsilenced")


class Reception:
    """The present, and how well it is known.

    `notice` is the newest sentence for the operator, until the screen takes it away; `link` says how the feed stands,
    with `link_text` the sentence why it is lost.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.present = Present()
        self.runs = Runs()
        self.books: BooksArrived | None = None
        """The runbooks there are; None until they have been read."""
        self.past: PastArrived | None = None
        """The history of dumps and restores; None until it has been read."""
        self.notice: str | None = None
        self.link: LinkState = "connecting"
        self.link_text = ""
        self.failure: ConsoleError | None = None
        """Why there is no console to open at all."""
        self.awaited: str | None = None
        """The text of a mark or note sent and not yet seen among the events."""
        self.sent: str | None = None
        """What the screen said when it asked something of a run: it has done its service once the agent answers."""
        self.awaited_finding: str | None = None
        """The finding of which something was said, until the agent tells of it."""
        self.heard_us: int | None = None
        """Monotonic time of the newest sample's arrival."""

    @property
    def silent_s(self) -> float | None:
        """Seconds since the agent was last heard of; None where there is none, or nothing came yet."""
        return None if self.heard_us is None else (self._clock.mono_us() - self.heard_us) / 1e6

    def receive(self, arrival: Arrival) -> bool:
        """Take in one thing. True where the present is another one now."""
        match arrival:
            case SampleArrived(data):
                self.present.absorb(data)
                self.heard_us = self._clock.mono_us()
                return True
            case EventArrived(event):
                self.present.happened(event)
                self.runs.happened(event)
                self._acknowledge(event)
                return True
            case NoticeArrived(text):
                self.notice = text
            case BooksArrived():
                self.books = arrival
            case PastArrived():
                self.past = arrival
            case RunsRecorded(runs):
                self.runs.recorded = runs
            case RunViewMessage() | RunLines() | RunRefused():
                self.runs.receive(arrival)
                self._answered_run()
            case LinkChanged(state, text, error, session):
                self.link, self.link_text = state, text
                self.failure = error or self.failure
                if session is not None:
                    self.runs.attached(session.runs)
        return False

    def _answered_run(self) -> None:
        """The agent spoke of a run: what was sent has arrived, or is refused with a sentence."""
        refused = self.runs.take_refusal()
        if refused is not None:
            self.notice = refused
        elif self.sent is not None and self.notice == self.sent:
            self.notice = self.sent = None

    def _acknowledge(self, event: Event) -> None:
        """Say that the operator's own mark or note is recorded, once the agent tells of it."""
        if self.awaited is not None and event.kind in ("mark", "note") and event.text == (self.awaited or "mark"):
            self.notice, self.awaited = f"{event.kind} recorded: {event.text}", None
        elif event.kind in _SAID_OF_FINDINGS and event.details.get("id") == self.awaited_finding:
            self.notice, self.awaited_finding = event.text, None
