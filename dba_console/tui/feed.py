"""What feeds the screen: samples and events of a running agent, moments of a recording, or both.

A feed's threads only put things that never change into its mailbox; the screen's thread takes them out. Nothing queues
without a bound, and a screen that stopped reading (nobody empties the terminal) costs old samples, never the agent.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from dba_console.agent.protocol import (
    Acknowledge,
    OpenRun,
    RunLines,
    RunReply,
    RunRequest,
    RunViewMessage,
    Silence,
)
from dba_console.core.errors import ConsoleError
from dba_console.tui.loaders import JobHistoryArrived, RunbooksArrived
from dba_console.tui.recorded_runs import RecordedRunsArrived
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

# What can be asked of a recording. The answers are moments; archive.py gives them, feed.py carries them.


@dataclass(frozen=True, slots=True)
class AtTime:
    """The moment at a wall time."""

    wall_us: int
    since_us: int | None = None
    """Playing: points up to here are at hand, only later ones are wanted."""


@dataclass(frozen=True, slots=True)
class NextSample:
    """The sample after (+1) or before (-1)."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class NextNotable:
    """The mark, note, finding or trouble after (+1) or before (-1)."""

    from_us: int
    direction: int


@dataclass(frozen=True, slots=True)
class RecordingEdge:
    """The start (-1) or the end (+1) of the recording."""

    direction: int


@dataclass(frozen=True, slots=True)
class NamedTime:
    """A TIME as the operator wrote it."""

    text: str
    now_us: int | None = None
    """What `-10m` counts from; None: the end of the recording."""


RecordingQuery = AtTime | NextSample | NextNotable | RecordingEdge | NamedTime


MAX_SAMPLES, MAX_OTHERS = 64, 512
"""Room of the mailbox: about a minute of samples, and events far beyond what a minute brings."""

MAX_RUNS, MAX_OUTPUT = 32, 512
"""Runs whose newest view is kept, and pieces of output: what comes faster than the screen reads is counted."""

FindingOrRunRequest = Acknowledge | Silence | RunRequest
"""What can be asked about a finding, or of a run."""

ChartPoint = tuple[int, dict[str, float]]
AgentConnectionState = Literal["connecting", "attached", "lost", "failed", "recording"]


@dataclass(frozen=True, slots=True)
class Session:
    """What is known of the recording that belongs to the feed."""

    name: str
    """The target's name."""
    host: str = ""
    started_us: int | None = None
    interval_s: float = 1.0
    grace_s: float | None = None
    """How long the agent goes on after the last console left; None: until told to stop."""
    runs: tuple[OpenRun, ...] = ()
    """Runs that had not ended when the agent was attached to."""
    target_key: str | None = None
    """Names the target's history of jobs; None where only the recording tells it."""
    directory: Path | None = None
    """Of the recording, where there is one."""


@dataclass(frozen=True, slots=True)
class SampleArrived:
    data: bytes


@dataclass(frozen=True, slots=True)
class EventArrived:
    event: Event


@dataclass(frozen=True, slots=True)
class NoticeArrived:
    text: str


@dataclass(frozen=True, slots=True)
class AgentConnectionChanged:
    """The way to the agent: connecting, attached, or lost with the sentence why.

    `failed` is a first attempt that came to nothing: there is no console to open, and `error` says why.
    """

    state: AgentConnectionState
    text: str = ""
    error: ConsoleError | None = None
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class MomentArrived:
    """What a recording says of one moment. `serial` is the question's."""

    serial: int
    at_us: int
    picture: Picture
    points: Sequence[ChartPoint]
    events: Sequence[Event]
    first_us: int | None
    last_us: int | None
    damage: str | None = None
    """What is wrong with the recording, as far as is known."""
    continues: bool = False
    """The points go on from the ones of the moment before."""


@dataclass(frozen=True, slots=True)
class QueryRefused:
    """A question to the recording that has no answer, and why."""

    serial: int
    text: str


Other = (
    EventArrived
    | NoticeArrived
    | AgentConnectionChanged
    | MomentArrived
    | QueryRefused
    | RunbooksArrived
    | JobHistoryArrived
    | RecordedRunsArrived
    | RunReply
)
Arrival = SampleArrived | Other


class Mailbox:
    """Between the feed's threads and the screen's. `wake` is called from those threads after each put."""

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
        """Leave something; of samples only the newest are kept, of a run its newest view, and what is lost is
        counted."""
        with self._lock:
            match arrival:
                case SampleArrived():
                    self._put_sample(arrival)
                case RunViewMessage():
                    self._put_view(arrival)
                case RunLines():
                    self._put_lines(arrival)
                case AgentConnectionChanged():
                    # What the agent before said of its runs is nothing this one has to stand for.
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
        """Everything left since the last call, and the number of samples lost before it."""
        with self._lock:
            lost = [RunLines(run=run, block="", lines=[], dropped=count) for run, count in self._dropped.items()]
            arrivals: list[Arrival] = [*self._others, *self._views.values(), *lost, *self._output, *self._samples]
            missed, self._missed = self._missed, 0
            for kept in (self._others, self._views, self._dropped, self._output, self._samples):
                kept.clear()
        return arrivals, missed


class QueryService(Protocol):
    """Answers questions about the past into the mailbox; see archive.py."""

    def ask(self, query: RecordingQuery) -> int: ...
    def close(self) -> None: ...


class Feed(Protocol):
    """A source of moments for one screen."""

    can_go_live: bool
    """True while there is an agent, and with it a `now`."""
    mailbox: Mailbox
    session: Session

    @property
    def recording(self) -> QueryService | None:
        """The recording, None where there is none."""

    @property
    def refusal(self) -> str | None:
        """Why nothing can be marked or noted now, None where it can."""

    def start(self) -> None:
        """Begin; called before the screen exists, so that connecting and loading go on side by side."""

    def send(self, kind: Literal["mark", "note"], text: str, occurred_us: int | None) -> str | None:
        """Mark or note. None, or the sentence why it cannot be done."""

    def send_request(self, request: FindingOrRunRequest) -> str | None:
        """Say something of a finding or a run. None, or the sentence why it cannot be done."""

    def close(self) -> None:
        """End the feed's threads; never waits for one."""
