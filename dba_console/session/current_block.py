"""The block that is being filled: every sample becomes a row at once, and a sealed block when there are enough."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Sample, encode_sample
from dba_console.session.backlog import Backlog, SealedBlock, TailRow
from dba_console.session.blockformat import BlockHead
from dba_console.session.blockwriter import BlockWriter
from dba_console.session.keysample import key_sample
from dba_console.session.points import Point, pack_points
from dba_console.session.unsealed_samples import TailWriter

BLOCK_SAMPLES = 60
"""A minute at 1 Hz. Larger blocks are smaller in sum (a fifth at 120) and slower to seek in."""


class OpenBlock:
    """Used by the recorder's thread alone."""

    def __init__(self, backlog: Backlog, point_of: Callable[[Picture], Point], samples: int = BLOCK_SAMPLES) -> None:
        self._backlog = backlog
        self._point_of = point_of
        self._limit = samples
        self._picture = Picture()
        self.recorded = 0
        """Samples taken in since the start."""
        self.restart()

    def restart(self) -> None:
        """Begin an empty block; samples not sealed stay the rows they are."""
        self._block = BlockWriter()
        self._tail = TailWriter()
        self._walls: list[int] = []
        self._points: list[Point] = []
        self._last_seq = 0

    def add(self, sample: Sample, encoded: bytes, point: Point | None = None) -> None:
        """Take a sample in. The first of each segment of a block becomes a key sample.

        `point` holds its chart values where somebody has made them already.
        """
        self._picture = self._picture.with_sample(sample)
        if self._walls and sample.wall_us < self._walls[-1]:
            self.seal()  # the clock was set back: within a block times ascend
        if self._block.wants_key:
            sample = key_sample(sample, self._picture)
            encoded = encode_sample(sample)
        self._block.add(sample)
        self._walls.append(sample.wall_us)
        self._points.append(self._point() if point is None else point)
        self._last_seq = sample.seq
        data = self._tail.pack(sample.seq, sample.wall_us, encoded)
        self._backlog.put_row(TailRow(sample.seq, sample.wall_us, sample.mono_us, data))
        self.recorded += 1
        if self._block.samples >= self._limit:
            self.seal()

    def seal(self) -> None:
        """Hand over what there is as a block, and begin another."""
        block = self._block
        if block.samples == 0:
            return
        head = BlockHead(block.samples, block.first_seq, block.first_us, block.last_us)
        points = pack_points(self._walls, self._points)
        self._backlog.put_block(SealedBlock(head, self._last_seq, block.seal(), points))
        self.restart()

    def _point(self) -> Point:
        try:
            return self._point_of(self._picture)
        except Exception:
            # A chart value that cannot be made must not cost the sample it is made from.
            return {}
