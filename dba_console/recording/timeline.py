"""The samples of a recording in time order: complete blocks (two minutes each) by an index, then the newest ones.

Complete blocks are decoded on demand, and a few are cached.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

from dba_console.core.errors import Damaged
from dba_console.recording.sample_block import BlockEntry, SampleBlock, SampleRecord
from dba_console.recording.source import Source

# In-memory index of blocks: three numbers per block, searched by time.


class BlockIndex:
    """Blocks in the order they were recorded."""

    def __init__(self) -> None:
        self.seqs = array("q")
        self.first_us = array("q")
        self.last_us = array("q")
        self.samples = 0
        self._ascending = True

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def last_seq(self) -> int:
        """Return the first tick of the newest block, -1 if there is none."""
        return self.seqs[-1] if self.seqs else -1

    def append(self, entry: BlockEntry) -> None:
        if self.first_us and entry.first_us < self.first_us[-1]:
            self._ascending = False
        self.seqs.append(entry.first_seq)
        self.first_us.append(entry.first_us)
        self.last_us.append(entry.last_us)
        self.samples += entry.samples

    def find_position(self, wall_us: int, following: Sequence[tuple[int, int]] = ()) -> int:
        """Return the last block that starts at or before that time, -1 if all start later.

        `following`: first and last time of incomplete blocks, which come after the others.
        """
        firsts = [*self.first_us[-1:], *(first for first, _ in following)]
        if not self._ascending or any(later < earlier for earlier, later in pairwise(firsts)):
            return self._find_unordered(wall_us, following)
        for number in range(len(following) - 1, -1, -1):
            if following[number][0] <= wall_us:
                return len(self) + number
        return bisect_right(self.first_us, wall_us) - 1

    def _find_unordered(self, wall_us: int, following: Sequence[tuple[int, int]]) -> int:
        """Return the block nearest to the time, the later one of two, if the host's clock was set back."""
        spans = [*zip(self.first_us, self.last_us, strict=True), *following]
        best, position = -1, -1
        for number, (first, last) in enumerate(spans):
            reach = min(last, wall_us)
            if first <= wall_us and reach >= best:
                best, position = reach, number
        return position


CACHE_BYTES = 4 << 20
"""Maximum estimated bytes of decoded blocks in the cache: a console may use 60 MB in total."""
CACHE_LEAST = 1


class Timeline:
    """Blocks at positions 0, 1, 2, …; the last ones may still grow. A damaged block raises Damaged when it is read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._index = BlockIndex()
        self._tails: list[SampleBlock] = []
        self._kept: OrderedDict[int, SampleBlock] = OrderedDict()
        self._bad: set[int] = set()
        self.trouble: str | None = None
        """First problem of a block or of the newest samples."""

    def __len__(self) -> int:
        return len(self._index) + len(self._tails)

    @property
    def samples(self) -> int:
        """Return the number of samples in the index, including blocks found damaged later."""
        return self._index.samples + sum(len(block) for block in self._tails)

    @property
    def first_us(self) -> int | None:
        """Return the wall time of the first sample."""
        if len(self._index):
            return self._index.first_us[0]
        return self._tails[0].walls[0] if self._tails else None

    @property
    def last_us(self) -> int | None:
        """Return the wall time of the newest sample."""
        if self._tails:
            return self._tails[-1].walls[-1]
        return self._index.last_us[-1] if len(self._index) else None

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Return the earliest and the latest wall time: not those of the first and newest sample if the host's clock
        was set."""
        walls = [wall for block in self._tails for wall in block.walls]
        walls += [*self._index.first_us, *self._index.last_us]
        return (min(walls), max(walls)) if walls else None

    def refresh(self) -> None:
        """Read what was committed since. Raises Damaged."""
        for entry in self._source.blocks(self._index.last_seq):
            self._index.append(entry)
            self._tails = [block for block in self._tails if block.base_seq != entry.first_seq]
        newest = self._tails[-1].last_seq if self._tails else -1
        for row in self._source.tail(newest):
            try:
                self._take_row(row)
            except Damaged as error:
                self.trouble = self.trouble or error.message

    def _take_row(self, row: bytes) -> None:
        record = SampleRecord.read(row)
        if self._tails and self._tails[-1].base_seq == record.base_seq:
            self._tails[-1].append(record)
        else:
            self._tails.append(SampleBlock(row))

    def find_position(self, wall_us: int) -> int:
        """Return the block that contains or precedes that time, -1 if it is before all."""
        return self._index.find_position(wall_us, [(block.walls[0], block.walls[-1]) for block in self._tails])

    def find_overlapping(self, from_us: int, to_us: int) -> list[int]:
        """Return the blocks that may have samples between two times, in the order they were recorded.

        After the host's clock was set back these are not consecutive.
        """
        spans = [
            *zip(self._index.first_us, self._index.last_us, strict=True),
            *((block.walls[0], block.walls[-1]) for block in self._tails),
        ]
        # A block that ends before it starts contains such a step: its samples may have any time near it.
        return [at for at, (first, last) in enumerate(spans) if (first <= to_us and last >= from_us) or last < first]

    def sealed_seq(self, position: int) -> int | None:
        """Return the stored number of a complete block, None for an incomplete one."""
        return self._index.seqs[position] if position < len(self._index) else None

    def block(self, position: int) -> SampleBlock:
        """Return the block at that position, decoded as far as needed. Raises Damaged."""
        seq = self.sealed_seq(position)
        if seq is None:
            return self._tails[position - len(self._index)]
        if seq in self._bad:
            raise Damaged("a block of the recording is damaged")
        block = self._kept.get(seq)
        if block is None:
            block = self._kept[seq] = SampleBlock(self._source.block(seq))
            if block.damage is not None:
                self.trouble = self.trouble or block.damage.message
        self._kept.move_to_end(seq)
        while len(self._kept) > CACHE_LEAST and sum(kept.weight for kept in self._kept.values()) > CACHE_BYTES:
            self._kept.popitem(last=False)
        return block

    def mark_damaged(self, position: int) -> None:
        """Mark this block as damaged, so that it is not decoded again."""
        seq = self.sealed_seq(position)
        if seq is not None:
            self._bad.add(seq)
            self._kept.pop(seq, None)

    def forget(self) -> None:
        """Drop the cached blocks."""
        self._kept.clear()
