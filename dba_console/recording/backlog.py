"""What is ready to be written and has not been: the bounded memory between a live agent and a disk that may stall.

While the disk keeps up this holds next to nothing. While it does not, samples wait here as sealed blocks, a few
hundred bytes each, so that minutes of a stalled disk, which is when a recording matters most, are not lost. Beyond the
bound the oldest go, and are counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from dba_console.recording.block_format import BlockHead
from dba_console.recording.journal import END, LogLine
from dba_console.watch.samples.event import Event

BLOCK_BYTES = 4 << 20
"""Sealed blocks kept in memory: some two hours at 600 bytes a second."""
EVENTS = 2000
"""Events, and gaps, kept in memory while the disk does not take them."""
LINES = 5000
"""Lines of commands' output kept in memory while the disk does not take them; the output files have them all."""
LINES_AT_ONCE = 1000
BLOCKS_AT_ONCE = 16
"""Blocks of one transaction, so that catching up does not make one giant write."""


class TailRow(NamedTuple):
    """A sample of the block that is still open."""

    seq: int
    wall_us: int
    mono_us: int
    data: bytes


class SealedBlock(NamedTuple):
    """A full block with its chart values."""

    head: BlockHead
    last_seq: int
    data: bytes
    points: bytes


class Gap(NamedTuple):
    """Ticks that were not recorded: the wall times of the samples around it, and how many are known to miss."""

    from_us: int
    to_us: int
    samples: int
    reason: str


class Batch(NamedTuple):
    """What one transaction writes."""

    blocks: list[SealedBlock]
    rows: list[TailRow]
    events: list[Event]
    gaps: list[Gap]
    lines: list[LogLine]

    def __bool__(self) -> bool:
        return bool(self.blocks or self.rows or self.events or self.gaps or self.lines)


class Backlog:
    """Filled by the recorder's thread, emptied by the writer's."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.closing = False
        self.dropped = 0
        """Samples given up because the disk stalled for longer than the memory lasts."""
        self.dropped_events = 0
        """Events given up because more of them waited for the disk than EVENTS."""
        self.dropped_lines = 0
        """Lines of output given up likewise."""
        self._blocks: deque[SealedBlock] = deque()
        self._since: deque[int | None] = deque()
        """For each block the monotonic time of its first sample that is in no row on the disk; None where all are."""
        self._rows: list[TailRow] = []
        self._events: deque[Event] = deque()
        self._gaps: deque[Gap] = deque(maxlen=EVENTS)
        self._lines: deque[LogLine] = deque()
        self._bytes = 0

    def put_row(self, row: TailRow) -> None:
        with self.changed:
            self._rows.append(row)
            self.changed.notify_all()

    def put_block(self, block: SealedBlock) -> None:
        """A sealed block takes the place of the rows it is made of."""
        with self.changed:
            self._since.append(self._rows[0].mono_us if self._rows else None)
            self._rows.clear()
            self._blocks.append(block)
            self._bytes += len(block.data) + len(block.points)
            while self._bytes > BLOCK_BYTES and len(self._blocks) > 1:
                self._drop_oldest()
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
        """Nothing more will come."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def take(self) -> Batch:
        """What to write next. It stays here until `written` says it is on the disk."""
        with self.changed:
            blocks = [self._blocks[index] for index in range(min(BLOCKS_AT_ONCE, len(self._blocks)))]
            lines = list(islice(self._lines, LINES_AT_ONCE))
            events = list(self._events)
            if len(blocks) < len(self._blocks) or len(lines) < len(self._lines):
                # The end vouches for all that was written, so it comes with the last of it.
                events = list(takewhile(lambda event: event.kind != END, events))
            return Batch(blocks, list(self._rows), events, list(self._gaps), lines)

    def written(self, batch: Batch) -> None:
        """Forget what is durable now."""
        with self.changed:
            for block in batch.blocks:
                if self._blocks and self._blocks[0] is block:
                    self._blocks.popleft()
                    self._since.popleft()
                    self._bytes -= len(block.data) + len(block.points)
            done = {row.seq for row in batch.rows}
            self._rows = [row for row in self._rows if row.seq not in done]
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
            return not (self._blocks or self._rows or self._events or self._gaps or self._lines)

    def oldest_mono_us(self) -> int | None:
        """Monotonic time of the oldest sample not on the disk, None where all are."""
        with self.changed:
            # A sealed block that waits is no lag by itself: its samples were written one by one.
            waiting = [since for since in self._since if since is not None]
            if waiting:
                return waiting[0]
            return self._rows[0].mono_us if self._rows else None

    def _drop_oldest(self) -> None:
        lost = self._blocks.popleft()
        self._since.popleft()
        self._bytes -= len(lost.data) + len(lost.points)
        self.dropped += lost.head.samples
        reason = "the disk of the recording stalled for longer than the memory of the recorder lasts"
        self._gaps.append(Gap(lost.head.first_us, lost.head.last_us, lost.head.samples, reason))
