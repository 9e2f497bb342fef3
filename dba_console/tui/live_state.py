"""The live state: what the agent has sent, as one picture, one chart history and the last events.

Owned by the screen's thread. It keeps growing while the operator views the past.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dba_console.tui.feed import MomentArrived
from dba_console.tui.recording_reader import next_notable_us
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, decode_sample

# The sample buffer: the last minutes in memory, so that pausing and stepping need no recording.
#
# Samples stay encoded; a picture is rebuilt on demand. Samples that fall out are merged into the picture the buffer
# starts from, so parts read long ago at a low rate are kept. Limited by count and by bytes.

MAX_SAMPLES, MAX_BYTES = 120, 4 << 20
"""Two minutes at 1 Hz, and what the console's memory budget leaves for it."""


class SampleBuffer:
    """Recent samples in order of arrival. Times are wall-clock microseconds."""

    def __init__(self, samples: int = MAX_SAMPLES, size: int = MAX_BYTES) -> None:
        self._limit = samples
        self._size_limit = size
        self._samples: deque[tuple[Sample, int]] = deque()
        self._size = 0
        self._base = Picture()

    def add(self, sample: Sample, size: int) -> None:
        """Add `sample` of `size` bytes; drop the oldest beyond the limits, never the newest."""
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
        """Return the samples kept, oldest first."""
        return (sample for sample, _ in self._samples)

    def covers(self, wall_us: int) -> bool:
        """Check whether the time lies within what is kept."""
        return bool(self._samples) and self._samples[0][0].wall_us <= wall_us

    def picture_at(self, wall_us: int) -> Picture | None:
        """Return what was known at that time; None if it is before what is kept."""
        if not self.covers(wall_us):
            return None
        picture = self._base
        for sample, _ in self._samples:
            if sample.wall_us > wall_us:
                break
            picture = picture.with_sample(sample)
        return picture

    def step(self, wall_us: int, direction: int) -> int | None:
        """Return the time of the sample after (+1) or before (-1) `wall_us`; None if outside the buffer."""
        times = [sample.wall_us for sample, _ in self._samples]
        if direction > 0:
            return next((at for at in times if at > wall_us), None)
        return next((at for at in reversed(times) if at < wall_us), None)


# A moment: everything a frame is built from, live or in the past.


@dataclass(frozen=True, slots=True)
class Moment:
    picture: Picture
    history: ChartHistory
    """The ten minutes before it."""
    events: Sequence[Event]

    def frame(self) -> Frame:
        """Return the frame; takes some milliseconds, so called once per painting."""
        return derive(self.picture, self.history, self.events)


MAX_EVENTS = 300


class LiveState:
    """The current state and the last minutes in memory."""

    def __init__(self) -> None:
        self._picture = Picture()
        self._history = ChartHistory()
        self._buffer = SampleBuffer()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.damaged = 0
        """Samples that could not be read: an agent of another version, or a damaged message."""

    @property
    def at_us(self) -> int | None:
        """Wall-clock time of the newest sample, None before the first."""
        return self._picture.wall_us or None

    def add_sample(self, data: bytes, point: Mapping[str, float]) -> None:
        """Add an encoded sample with its chart values."""
        try:
            sample = decode_sample(data)
        except msgspec.MsgspecError:
            self.damaged += 1
            return
        if sample.boot != self._picture.boot:
            # Another agent run: its counters do not continue the previous ones.
            self._buffer = SampleBuffer()
        self._picture = self._picture.with_sample(sample)
        self._history.add(sample.wall_us, point)
        self._buffer.add(sample, len(data))

    def add_event(self, event: Event) -> None:
        """Add an event; one already known (read from the recording too) counts once."""
        if all(_event_identity(known) != _event_identity(event) for known in self._events):
            self._events.append(event)

    def merge_recording(self, answer: MomentArrived) -> None:
        """Put what the recording has before what was received: after attaching, or after samples were missed."""
        # Samples of an agent received before the recording began exist only here.
        history = self._history.until(answer.points[0][0] - 1) if answer.points else ChartHistory()
        history.extend(answer.points)
        history.extend(self._history.points_after(answer.picture.wall_us))
        known = {_event_identity(event) for event in answer.events}
        live_only = [event for event in self._events if _event_identity(event) not in known]
        self._events = deque(
            sorted([*answer.events, *live_only], key=lambda event: event.happened_us), maxlen=MAX_EVENTS
        )
        picture = answer.picture
        for sample in self._buffer.samples():
            if sample.wall_us > picture.wall_us:
                picture = picture.with_sample(sample)
        if self._picture.boot in ("", picture.boot):
            self._picture = picture
        self._history = history

    def moment(self) -> Moment | None:
        """The current moment; None before the first sample."""
        return Moment(self._picture, self._history, tuple(self._events)) if self.at_us else None

    def moment_at(self, wall_us: int) -> Moment | None:
        """Return a moment still in memory, None if the recording must be queried."""
        picture = self._buffer.picture_at(wall_us)
        if picture is None:
            return None
        events = tuple(event for event in self._events if event.happened_us <= picture.wall_us)
        return Moment(picture, self._history.until(picture.wall_us), events)

    def step(self, wall_us: int, direction: int) -> int | None:
        """Return the time of the next or previous sample if it is still in memory."""
        return self._buffer.step(wall_us, direction)

    def next_notable_us(self, from_us: int, direction: int) -> int | None:
        """Return the time of the next or previous mark or finding among the events in memory."""
        return next_notable_us(tuple(self._events), from_us, direction)


def _event_identity(event: Event) -> tuple[int, str, str]:
    """Return what identifies an event, sent by the agent or read from the recording: only there it has a number."""
    return (event.wall_us, event.kind, event.text)
