"""The feed of the screen: samples and events of a running agent, recorded moments, or both.

A feed's threads only put immutable objects into its mailbox; the screen's thread takes them out. Every queue is
bounded: a screen that cannot keep up (terminal not read) loses old samples and never blocks the agent.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from dba_console.agent.protocol import Acknowledge, OpenRun, RunLines, RunReply, RunRequest, RunViewMessage, Silence
from dba_console.core.errors import ConsoleError
from dba_console.jobs.history.duration_trend import TargetJobHistory
from dba_console.tui.known_runs import RecordedRunsArrived
from dba_console.tui.loaders import RunbooksArrived
from dba_console.watch.frames.model import Finding
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

# Queries to the recording. recording_reader.py answers them with moments; the feed carries both.


@dataclass(frozen=True, slots=True)
class AtTime:
    """The moment at a wall-clock time."""

    wall_us: int
    since_us: int | None = None
    """Playing: the points up to this time are known, only later ones are needed."""


@dataclass(frozen=True, slots=True)
class NextSample:
    """The sample after (+1) or before (-1) a time."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class NextNotable:
    """The mark, note, finding or error after (+1) or before (-1) a time."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class RecordingEdge:
    """The start (-1) or the end (+1) of the recording."""

    direction: int


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A TIME as typed by the operator."""

    text: str
    now_us: int | None = None
    """Reference for `-10m`; None: the end of the recording."""


@dataclass(frozen=True, slots=True)
class SameMoment:
    """The moment that another of the recorded hosts has at a time by its own clock."""

    wall_us: int
    host: int


RecordingQuery = AtTime | NextSample | NextNotable | RecordingEdge | NamedTime | SameMoment


MAX_SAMPLES, MAX_OTHERS = 64, 512
"""Capacity of the mailbox: about a minute of samples, and far more events than a minute brings."""

MAX_RUNS, MAX_OUTPUT = 32, 512
"""Runs whose latest view is kept, and pieces of output; what exceeds them is counted as lost."""

FindingOrRunRequest = Acknowledge | Silence | RunRequest
"""Requests about a finding or a run."""

ChartPoint = tuple[int, dict[str, float]]
AgentConnectionState = Literal["connecting", "attached", "lost", "failed", "recording"]


@dataclass(frozen=True, slots=True)
class Session:
    """Facts about the recording that belongs to the feed."""

    name: str
    """The target's name."""
    host: str = ""
    started_us: int | None = None
    interval_s: float = 1.0
    grace_s: float | None = None
    """Seconds the agent keeps running after the last console left; None: until stopped."""
    runs: tuple[OpenRun, ...] = ()
    """Runs that were open when the console attached."""
    target_key: str | None = None
    """Identifies the target's job history; None if only the recording has it."""
    directory: Path | None = None
    """Of the recording, if there is one."""


@dataclass(frozen=True, slots=True)
class SampleArrived:
    data: bytes
    point: dict[str, float]
    """Its chart values."""


@dataclass(frozen=True, slots=True)
class EventArrived:
    event: Event


@dataclass(frozen=True, slots=True)
class NoticeArrived:
    text: str


@dataclass(frozen=True, slots=True)
class AgentConnectionChanged:
    """State of the connection to the agent: connecting, attached, or lost with the reason as a sentence.

    `failed`: the first attempt failed, no screen opens, and `error` holds the reason.
    """

    state: AgentConnectionState
    text: str = ""
    error: ConsoleError | None = None
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class OtherHost:
    """A recorded host that is not shown, at the moment shown."""

    host: int
    name: str
    findings: Sequence[Finding] = ()
    """By urgency."""
    problem: str = ""
    """Why it cannot be shown at this moment."""
    gap: str = ""
    """Why its findings are not known, although it can be shown."""


@dataclass(frozen=True, slots=True)
class MomentArrived:
    """A moment read from a recording. `serial` is that of the query."""

    serial: int
    at_us: int
    picture: Picture
    points: Sequence[ChartPoint]
    events: Sequence[Event]
    first_us: int | None
    last_us: int | None
    damage: str | None = None
    """What is wrong with the recording, as far as known."""
    continues: bool = False
    """The points continue those of the previous moment."""
    host: int = 0
    """Which of the recorded hosts it is of."""
    others: Sequence[OtherHost] = ()
    """The other recorded hosts at the same moment, the next one first."""
    notice: str = ""
    """Offset of a clock that was just measured, or of the host shown now."""


@dataclass(frozen=True, slots=True)
class QueryRefused:
    """A query to the recording that has no answer, and why."""

    serial: int
    text: str


Other = (
    EventArrived
    | NoticeArrived
    | AgentConnectionChanged
    | MomentArrived
    | QueryRefused
    | RunbooksArrived
    | TargetJobHistory
    | RecordedRunsArrived
    | RunReply
)
Arrival = SampleArrived | Other


class Mailbox:
    """Passes arrivals from the feed's threads to the screen's. `wake` is called from those threads after each put."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[SampleArrived] = deque()
        self._others: deque[Other] = deque(maxlen=MAX_OTHERS)
        self._views: dict[str, RunViewMessage] = {}
        self._output: deque[RunLines] = deque()
        self._dropped: Counter[str] = Counter()
        self._missed = 0
        self.wake: Callable[[], None] = lambda: None

    def put(self, arrival: Arrival) -> None:
        """Add an arrival. Only the newest samples and each run's newest view are kept; lost ones are counted."""
        with self._lock:
            match arrival:
                case SampleArrived():
                    self._put_sample(arrival)
                case RunViewMessage():
                    self._put_view(arrival)
                case RunLines():
                    self._put_lines(arrival)
                case AgentConnectionChanged():
                    # Views from the previous agent do not describe the runs of this one.
                    self._views.clear()
                    self._others.append(arrival)
                case _:
                    self._others.append(arrival)
        self.wake()

    def _put_sample(self, arrival: SampleArrived) -> None:
        self._samples.append(arrival)
        if len(self._samples) > MAX_SAMPLES:
            self._samples.popleft()
            self._missed += 1

    def _put_view(self, arrival: RunViewMessage) -> None:
        self._views.pop(arrival.view.run, None)
        self._views[arrival.view.run] = arrival
        if len(self._views) > MAX_RUNS:
            del self._views[next(iter(self._views))]

    def _put_lines(self, arrival: RunLines) -> None:
        self._output.append(arrival)
        if len(self._output) > MAX_OUTPUT:
            lost = self._output.popleft()
            self._dropped[lost.run] += len(lost.lines) + lost.dropped

    def take(self) -> tuple[list[Arrival], int]:
        """Return everything put since the last call, and the number of samples lost before it."""
        with self._lock:
            lost = [RunLines(run=run, block="", lines=[], dropped=count) for run, count in self._dropped.items()]
            arrivals: list[Arrival] = [*self._others, *self._views.values(), *lost, *self._output, *self._samples]
            missed, self._missed = self._missed, 0
            for kept in (self._others, self._views, self._dropped, self._output, self._samples):
                kept.clear()
        return arrivals, missed


class QueryService(Protocol):
    """Answers queries about the past into the mailbox; see recording_reader.py."""

    def ask(self, query: RecordingQuery, host: int = 0) -> int: ...
    def close(self) -> None: ...


class Feed(Protocol):
    """The source of samples for one screen."""

    can_go_live: bool
    """True if there is an agent, and so a current time."""
    mailbox: Mailbox
    session: Session
    """The one shown."""
    hosts: Sequence[Session]
    """Recorded sessions of several hosts; empty if there is one session only."""

    @property
    def recording(self) -> QueryService | None:
        """The recording, None without one."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be marked or noted now, None if it can."""

    def start(self) -> None:
        """Start the threads; called before the screen exists, so that connecting and loading run in parallel."""

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        """Send a mark or note. Returns None, or a sentence why it cannot be sent."""

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        """Send a request about a finding or a run. Returns None, or a sentence why it cannot be sent."""

    def close(self) -> None:
        """End the feed's threads without waiting for them."""
