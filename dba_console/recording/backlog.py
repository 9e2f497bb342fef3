"""Bounded buffer of data to be written, between the agent and a disk that may stall.

Normally nearly empty. If the disk stalls, samples wait here as sealed blocks, about 1,000 bytes each, so that minutes
of a stalled disk, when a recording matters most, are not lost. Above the limit the oldest are dropped and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from dba_console.recording.journal import END, LogLine
from dba_console.recording.sample_block import BlockEntry
from dba_console.watch.samples.event import Event

BLOCK_BYTES = 8 << 20
"""Maximum sealed blocks in memory: about two hours at 1,000 bytes a second."""
EVENTS = 2000
"""Maximum events, and gaps, in memory while the disk is stalled."""
LINES = 5000
"""Maximum lines of commands' output in memory while the disk is stalled; the output files have all of them."""
LINES_AT_ONCE = 1000
BLOCKS_AT_ONCE = 16
"""Maximum blocks per transaction, so that catching up is not one huge write."""


class TailRow(NamedTuple):
    """A sample of the open block."""

    seq: int
    wall_us: int
    mono_us: int
    data: bytes


class SealedBlock(NamedTuple):
    """A full block with its chart values."""

    entry: BlockEntry
    last_seq: int
    data: bytes
    points: bytes


class Gap(NamedTuple):
    """Ticks that were not recorded: wall times of the samples around them, and the known number of missing ones."""

    from_us: int
    to_us: int
    samples: int
    reason: str


class Batch(NamedTuple):
    """Data of one transaction."""

    blocks: list[SealedBlock]
    rows: list[TailRow]
    events: list[Event]
    gaps: list[Gap]
    lines: list[LogLine]

    def __bool__(self) -> bool:
        return bool(self.blocks or self.rows or self.events or self.gaps or self.lines)


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
        self._blocks: deque[SealedBlock] = deque()
        self._since: deque[int | None] = deque()
        """Per block the monotonic time of its first sample without a row on disk; None if all have one."""
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
        """Replace the rows of a block with the sealed block."""
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
        """Close the backlog: nothing more is added."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()

    def take(self) -> Batch:
        """Return the next batch. It stays here until `written` is called."""
        with self.changed:
            blocks = [self._blocks[index] for index in range(min(BLOCKS_AT_ONCE, len(self._blocks)))]
            lines = list(islice(self._lines, LINES_AT_ONCE))
            events = list(self._events)
            if len(blocks) < len(self._blocks) or len(lines) < len(self._lines):
                # The end event contains the digests of everything, so it is in the last batch.
                events = list(takewhile(lambda event: event.kind != END, events))
            return Batch(blocks, list(self._rows), events, list(self._gaps), lines)

    def written(self, batch: Batch) -> None:
        """Remove what is durable now."""
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
        """Return the monotonic time of the oldest sample not on disk, None if all are."""
        with self.changed:
            # A waiting sealed block is not a lag: its samples were already written as rows.
            waiting = [since for since in self._since if since is not None]
            if waiting:
                return waiting[0]
            return self._rows[0].mono_us if self._rows else None

    def _drop_oldest(self) -> None:
        lost = self._blocks.popleft()
        self._since.popleft()
        self._bytes -= len(lost.data) + len(lost.points)
        self.dropped += lost.entry.samples
        reason = "the disk of the recording stalled for longer than the recorder can buffer"
        self._gaps.append(Gap(lost.entry.first_us, lost.entry.last_us, lost.entry.samples, reason))
