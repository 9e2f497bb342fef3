"""The present: what the agent has sent so far, folded into one picture, one history and the last events.

Owned by the screen's thread. It goes on growing while the operator looks at the past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dba_console.tui.feed import MomentArrived
from dba_console.tui.recording_reader import next_notable_us
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.chart_points import point_of
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, decode_sample

# The last minutes in memory: samples as they came, so that pausing and stepping need no recording.
#
# Samples stay encoded; a picture is made again when one is asked for. What is forgotten is folded into the picture the
# ring starts from, so slow parts read long ago are still there. Bounded by count and by bytes.

MAX_SAMPLES, MAX_BYTES = 120, 4 << 20
"""Two minutes at 1 Hz, and what the memory budget of the console leaves for it."""


class SampleBuffer:
    """Recent samples in the order they came. Times are wall microseconds."""

    def __init__(self, samples: int = MAX_SAMPLES, size: int = MAX_BYTES) -> None:
        self._limit = samples
        self._size_limit = size
        self._samples: deque[tuple[Sample, int]] = deque()
        self._size = 0
        self._base = Picture()

    def add(self, sample: Sample, size: int) -> None:
        """Keep `sample`, which takes `size` bytes; forget the oldest beyond the bounds, never the newest."""
        self._samples.append((sample, size))
        self._size += size
        while len(self._samples) > 1 and (len(self._samples) > self._limit or self._size > self._size_limit):
            oldest, taken = self._samples.popleft()
            self._size -= taken
            self._base = self._base.with_sample(oldest)

    @property
    def first_us(self) -> int | None:
        return self._samples[0][0].wall_us if self._samples else None

    @property
    def last_us(self) -> int | None:
        return self._samples[-1][0].wall_us if self._samples else None

    def samples(self) -> Iterator[Sample]:
        """What is kept, oldest first."""
        return (sample for sample, _ in self._samples)

    def covers(self, wall_us: int) -> bool:
        """True where the moment lies within what is kept."""
        return bool(self._samples) and self._samples[0][0].wall_us <= wall_us

    def picture_at(self, wall_us: int) -> Picture | None:
        """What was known at that moment; None where it lies before what is kept."""
        if not self.covers(wall_us):
            return None
        picture = self._base
        for sample, _ in self._samples:
            if sample.wall_us > wall_us:
                break
            picture = picture.with_sample(sample)
        return picture

    def step(self, wall_us: int, direction: int) -> int | None:
        """The time of the sample after (+1) or before (-1) `wall_us`; None where the ring does not reach."""
        times = [sample.wall_us for sample, _ in self._samples]
        if direction > 0:
            return next((at for at in times if at > wall_us), None)
        return next((at for at in reversed(times) if at < wall_us), None)


# A moment: all a frame is made of, whether it is now or was last week.


@dataclass(frozen=True, slots=True)
class Moment:
    picture: Picture
    history: ChartHistory
    """The ten minutes that led to it."""
    events: Sequence[Event]

    def frame(self) -> Frame:
        """What it means; some milliseconds of work, so asked for once per painting."""
        return derive(self.picture, self.history, self.events)


MAX_EVENTS = 300


class LiveState:
    """Now, and the last minutes of it that are in memory."""

    def __init__(self) -> None:
        self._picture = Picture()
        self._history = ChartHistory()
        self._buffer = SampleBuffer()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.damaged = 0
        """Samples that could not be read: another version's agent, or a torn message."""

    @property
    def at_us(self) -> int | None:
        """Wall time of the newest sample, None before the first."""
        return self._picture.wall_us or None

    def add_sample(self, data: bytes) -> None:
        """Take in an encoded sample."""
        try:
            sample = decode_sample(data)
        except msgspec.MsgspecError:
            self.damaged += 1
            return
        self._apply_sample(sample)
        self._buffer.add(sample, len(data))

    def _apply_sample(self, sample: Sample) -> None:
        if sample.boot != self._picture.boot:
            # Another agent run: its counters have nothing to do with those before.
            self._buffer = SampleBuffer()
        self._picture = self._picture.with_sample(sample)
        self._history.add(sample.wall_us, point_of(self._picture))

    def add_event(self, event: Event) -> None:
        """Take in an event; one that is known already (read from the recording as well) counts once."""
        if all(_event_identity(known) != _event_identity(event) for known in self._events):
            self._events.append(event)

    def merge_recording(self, answer: MomentArrived) -> None:
        """Put what the recording knows behind what was seen: after attaching, or after samples were missed."""
        # What this console saw of an agent run before the recording began is nowhere else.
        history = self._history.until(answer.points[0][0] - 1) if answer.points else ChartHistory()
        history.extend(answer.points)
        known = {_event_identity(event) for event in answer.events}
        live_only = [event for event in self._events if _event_identity(event) not in known]
        self._events = deque(sorted([*answer.events, *live_only], key=lambda event: event.wall_us), maxlen=MAX_EVENTS)
        picture = answer.picture
        for sample in self._buffer.samples():
            if sample.wall_us > picture.wall_us:
                picture = picture.with_sample(sample)
                history.add(sample.wall_us, point_of(picture))
        if self._picture.boot in ("", picture.boot):
            self._picture = picture
        self._history = history

    def moment(self) -> Moment | None:
        """Now; None before the first sample."""
        return Moment(self._picture, self._history, tuple(self._events)) if self.at_us else None

    def moment_at(self, wall_us: int) -> Moment | None:
        """A moment still in memory, None where the recording has to be asked."""
        picture = self._buffer.picture_at(wall_us)
        if picture is None:
            return None
        events = tuple(event for event in self._events if event.wall_us <= picture.wall_us)
        return Moment(picture, self._history.until(picture.wall_us), events)

    def step(self, wall_us: int, direction: int) -> int | None:
        """The sample after or before, where it is still in memory."""
        return self._buffer.step(wall_us, direction)

    def next_notable_us(self, from_us: int, direction: int) -> int | None:
        """The mark or finding after or before, among the events at hand."""
        return next_notable_us(tuple(self._events), from_us, direction)


def _event_identity(event: Event) -> tuple[int, str, str]:
    """What makes an event the same one, told by the agent or read from the recording: only there it has a number."""
    return (event.wall_us, event.kind, event.text)
