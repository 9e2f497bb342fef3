"""Iterate over the samples of a time span with their frames, and over the gaps between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from dba_console.core.errors import SessionError
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import Span, least_distance
from dba_console.watch.console.panel import LAST_EVENTS
from dba_console.watch.drawing.time_formats import date_and_time, time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

HISTORY_US = 600_000_000
"""Ten minutes, for trends and charts."""
PIECE_US = 300_000_000
"""Charts and events are read for five minutes at a time."""
GAP_TICKS = 2.5
"""Ticks without a sample that are shown as missing."""


class FrameReader:
    """Frames of a recording. Cheap if their times ascend; any other order is possible."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.history = ChartHistory()
        """The ten minutes before the newest frame."""
        self.new_events: list[Event] = []
        """Events between the frame before and the newest one; empty for the first."""
        self._events: deque[Event] = deque(maxlen=LAST_EVENTS)
        self._next_points: deque[tuple[int, dict[str, float]]] = deque()
        self._next_events: deque[Event] = deque()
        self._at_us: int | None = None
        self._read_to_us = 0

    def frame(self, picture: Picture) -> Frame:
        """Return the frame of a picture, with the charts and events before it."""
        at_us, self.new_events = picture.wall_us, []
        if self._at_us is None or at_us < self._at_us or at_us > self._read_to_us + PIECE_US:
            self._restart(at_us)
        elif at_us > self._read_to_us:
            self._next_points += self._recording.points(self._read_to_us + 1, at_us + PIECE_US)
            self._next_events += self._recording.events(self._read_to_us + 1, at_us + PIECE_US)
            self._read_to_us = at_us + PIECE_US
        self._at_us = at_us
        while self._next_points and self._next_points[0][0] <= at_us:
            self.history.add(*self._next_points.popleft())
        while self._next_events and self._next_events[0].happened_us <= at_us:
            self.new_events.append(self._next_events.popleft())
        self._events += self.new_events
        return derive(picture, self.history, tuple(self._events))

    def _restart(self, at_us: int) -> None:
        self.history.clear()
        self._events.clear()
        self._events += self._recording.events(to_us=at_us, limit=LAST_EVENTS)
        self._next_points = deque(self._recording.points(at_us - HISTORY_US, at_us + PIECE_US))
        self._next_events = deque(self._recording.events(at_us + 1, at_us + PIECE_US))
        self._read_to_us = at_us + PIECE_US


def one_picture(recording: Recording, wall_us: int) -> tuple[Picture, str]:
    """Return the newest sample not after a time, and what is missing between the two. Raises SessionError."""
    picture = recording.picture_at(wall_us)
    if picture is None:
        raise SessionError(
            f"nothing was recorded at or before {date_and_time(wall_us)} in {recording.directory.name}",
            hint=f"the recording begins at {date_and_time(recording.first_us)}",
        )
    return picture, missing_text(recording, picture, wall_us)


def missing_text(recording: Recording, last: Picture, until_us: int) -> str:
    """Return a sentence if samples are missing between the last one and a later time, with the recorded reason."""
    span_us = until_us - last.wall_us
    if span_us <= GAP_TICKS * _tick_us(last):
        return ""
    reasons = [gap.reason for gap in recording.gaps() if gap.from_us < until_us and gap.to_us > last.wall_us]
    why = f": {reasons[0]}" if reasons else ""
    return f"no samples for {human_duration(span_us / 1e6)} from {time_of_day(last.wall_us)}{why}"


class TimedPicture(NamedTuple):
    """A sample to show, `offset_us` after the start of the span by the monotonic clock."""

    offset_us: int
    picture: Picture
    missing: str = ""
    """Why no newer sample follows soon; the same sample was shown before without it."""


def timed_pictures(span: Span, every_us: int = 0) -> Iterator[TimedPicture]:
    """Yield the samples of a span, after the newest one before it; where samples are missing, that is said.

    Samples are in the order they were recorded. A step of the host's clock is not a step of the offset. `every_us`:
    the least time between two. Raises SessionError if the span has no sample.
    """
    recording, from_us, to_us = span
    offset_us, next_us = 0, 0
    before: Picture | None = None
    for picture in _pictures(recording, from_us, to_us):
        if before is not None:
            passed_us = _passed_us(before, picture)
            if passed_us > GAP_TICKS * _tick_us(before):
                why = missing_text(recording, before, picture.wall_us)
                yield TimedPicture(offset_us + _tick_us(before), before, why)
            # The sample before the span is shown at its start.
            offset_us += passed_us if before.wall_us >= from_us else max(0, picture.wall_us - from_us)
        if offset_us >= next_us:
            next_us = offset_us + least_distance(every_us)
            yield TimedPicture(offset_us, picture)
        before = picture
    if before is not None and (why := missing_text(recording, before, to_us)):
        yield TimedPicture(offset_us + _tick_us(before), before, why)


def _pictures(recording: Recording, from_us: int, to_us: int) -> Iterator[Picture]:
    """Yield the newest picture before the span, unless a sample is exactly at its start, then those of its samples."""
    before, inside = recording.picture_at(from_us - 1), recording.pictures(from_us, to_us)
    first = next(inside, None)
    if first is None:
        raise no_samples(recording, from_us, to_us)
    if before is not None and first.wall_us != from_us:
        yield before
    yield first
    yield from inside


def _tick_us(picture: Picture) -> int:
    return picture.tick_us or 1_000_000


def _passed_us(before: Picture, after: Picture) -> int:
    """Return the time between two samples: monotonic of one agent, else by the wall clock, never negative."""
    if before.boot == after.boot:
        return max(0, after.mono_us - before.mono_us)
    return max(0, after.wall_us - before.wall_us)


def no_samples(recording: Recording, from_us: int, to_us: int) -> SessionError:
    """Return the error for a span without samples, with the recorded reason and the nearest samples."""
    reasons = [gap.reason for gap in recording.gaps() if gap.from_us < to_us and gap.to_us > from_us]
    why = f": {clean(reasons[0])}" if reasons else ""
    return SessionError(
        f"no sample was recorded from {date_and_time(from_us)} to {date_and_time(to_us)}{why}",
        hint=f"the recording has {date_and_time(recording.first_us)} to {date_and_time(recording.last_us)}",
    )
