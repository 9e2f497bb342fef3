"""Bounded buffer of data to be written, between the agent and a disk that may stall.

Normally nearly empty. If the disk stalls, samples wait here compressed, about 1,000 bytes each, so that minutes of a
stalled disk, when a recording matters most, are not lost. Above the limit the oldest block is dropped and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from dba_console.recording.journal import END, LogLine
from dba_console.watch.samples.event import Event

SAMPLE_BYTES = 8 << 20
"""Maximum samples in memory: about two hours at 1,000 bytes a second."""
EVENTS = 2000
"""Maximum events, and gaps, in memory while the disk is stalled."""
LINES = 5000
"""Maximum lines of commands' output in memory while the disk is stalled; the output files have all of them."""
LINES_AT_ONCE = 1000
SAMPLES_AT_ONCE = 2000
"""Maximum samples per write, so that catching up is not one huge write."""


class SampleRow(NamedTuple):
    """A sample of a block, as its record."""

    seq: int
    base_seq: int
    """First sample of its block."""
    wall_us: int
    mono_us: int
    data: bytes


class BlockEnd(NamedTuple):
    """The end of a full block: its first sample and its chart values."""

    base_seq: int
    points: bytes


class Gap(NamedTuple):
    """Ticks that were not recorded: wall times of the samples around them, and the known number of missing ones."""

    from_us: int
    to_us: int
    samples: int
    reason: str


class Batch(NamedTuple):
    """Data of one transaction."""

    samples: list[SampleRow | BlockEnd]
    events: list[Event]
    gaps: list[Gap]
    lines: list[LogLine]

    def __bool__(self) -> bool:
        return bool(self.samples or self.events or self.gaps or self.lines)


class Backlog:
    """Buffer filled by the recorder's thread and emptied by the writer's."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closing = False
        self.dropped = 0
        """Samples dropped because the disk stalled for longer than the buffer lasts."""
        self.dropped_events = 0
        """Events dropped because more than EVENTS were waiting for the disk."""
        self.dropped_lines = 0
        """Lines of output dropped for the same reason."""
        self._samples: deque[SampleRow | BlockEnd] = deque()
        self._events: deque[Event] = deque()
        self._gaps: deque[Gap] = deque(maxlen=EVENTS)
        self._lines: deque[LogLine] = deque()
        self._bytes = 0

    def put_sample(self, item: SampleRow | BlockEnd) -> None:
        """Add a sample, or the end of the block whose samples were added before it."""
        with self.changed:
            self._samples.append(item)
            self._bytes += _size(item)
            while self._bytes > SAMPLE_BYTES and self._drop_oldest():
                pass
            self.changed.notify_all()

    def put_event(self, event: Event) -> None:
        with self.changed:
            if len(self._events) >= EVENTS:
                self.dropped_events += 1
                return
            self._events.append(event)
            self.changed.notify_all()

    def put_gap(self, gap: Gap) -> None:
        with self.changed:
            self._gaps.append(gap)
            self.changed.notify_all()

    def put_lines(self, lines: Sequence[LogLine]) -> None:
        with self.changed:
            free_lines = max(0, LINES - len(self._lines))
            self._lines.extend(lines[:free_lines])
            self.dropped_lines += max(0, len(lines) - free_lines)
            self.changed.notify_all()

    def close(self) -> None:
        """Close the backlog: nothing more is added."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def take(self) -> Batch:
        """Return the next batch. It stays here until `written` is called."""
        with self.changed:
            samples = list(islice(self._samples, SAMPLES_AT_ONCE))
            lines = list(islice(self._lines, LINES_AT_ONCE))
            events = list(self._events)
            if len(samples) < len(self._samples) or len(lines) < len(self._lines):
                # The end event contains the digests of everything, so it is in the last batch.
                events = list(takewhile(lambda event: event.kind != END, events))
            return Batch(samples, events, list(self._gaps), lines)

    def written(self, batch: Batch) -> None:
        """Remove what is durable now."""
        with self.changed:
            for item in batch.samples:
                if self._samples and self._samples[0] is item:
                    self._samples.popleft()
                    self._bytes -= _size(item)
            for _ in batch.events:
                self._events.popleft()
            for _ in batch.lines:
                self._lines.popleft()
            for gap in batch.gaps:
                if self._gaps and self._gaps[0] is gap:
                    self._gaps.popleft()
            self.changed.notify_all()

    def empty(self) -> bool:
        with self.changed:
            return not (self._samples or self._events or self._gaps or self._lines)

    def oldest_mono_us(self) -> int | None:
        """Return the monotonic time of the oldest sample not on disk, None if all are."""
        with self.changed:
            return next((item.mono_us for item in self._samples if isinstance(item, SampleRow)), None)

    def _drop_oldest(self) -> bool:
        """Drop the samples of the oldest block; return False if only the newest one is left."""
        base_seq, newest = self._samples[0].base_seq, self._samples[-1].base_seq
        if base_seq == newest:
            return False
        lost: list[SampleRow] = []
        while (item := self._samples[0]).base_seq == base_seq:
            self._samples.popleft()
            self._bytes -= _size(item)
            if isinstance(item, SampleRow):
                lost.append(item)
        self.dropped += len(lost)
        if lost:
            reason = "the disk of the recording stalled for longer than the recorder can buffer"
            self._gaps.append(Gap(lost[0].wall_us, lost[-1].wall_us, len(lost), reason))
        return True


def _size(item: SampleRow | BlockEnd) -> int:
    return len(item.data if isinstance(item, SampleRow) else item.points)
