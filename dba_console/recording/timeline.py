"""The blocks of a recording in the order of time: an index of the sealed ones, the newest samples behind them.

Sealed blocks are decoded when asked for, and a few are kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from dba_console.recording import unsealed_samples
from dba_console.recording.block_format import Damaged
from dba_console.recording.block_reader import BlockReader
from dba_console.recording.points import Point
from dba_console.recording.source import BlockEntry, Source
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import Sample, decode_sample

# The index of blocks in memory: three numbers a block, found by time with a binary search.


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
        """First tick of the newest block, -1 where there is none."""
        return self.seqs[-1] if self.seqs else -1

    def append(self, entry: BlockEntry) -> None:
        if self.first_us and entry.first_us < self.first_us[-1]:
            self._ascending = False
        self.seqs.append(entry.first_seq)
        self.first_us.append(entry.first_us)
        self.last_us.append(entry.last_us)
        self.samples += entry.samples

    def find_position(self, wall_us: int, following: Sequence[tuple[int, int]] = ()) -> int:
        """The last block that begins at or before that time, -1 where all begin later.

        `following`: first and last time of blocks not sealed yet, which stand behind the others.
        """
        firsts = [*self.first_us[-1:], *(first for first, _ in following)]
        if not self._ascending or any(later < earlier for earlier, later in pairwise(firsts)):
            return self._find_unordered(wall_us, following)
        for number in range(len(following) - 1, -1, -1):
            if following[number][0] <= wall_us:
                return len(self) + number
        return bisect_right(self.first_us, wall_us) - 1

    def _find_unordered(self, wall_us: int, following: Sequence[tuple[int, int]]) -> int:
        """The host's clock was set back meanwhile: the block that comes nearest to the time, the later one of two."""
        spans = [*zip(self.first_us, self.last_us, strict=True), *following]
        best, position = -1, -1
        for number, (first, last) in enumerate(spans):
            reach = min(last, wall_us)
            if first <= wall_us and reach >= best:
                best, position = reach, number
        return position


# The newest samples of a recording, read like a block although they are not one yet.


class TailBlock:
    """Samples that stand one by one, from one key sample on."""

    def __init__(self, base_seq: int) -> None:
        self.base_seq = base_seq
        self._base: bytes | None = None
        self._samples: list[Sample] = []
        self._pictures: list[Picture] = []
        self._points: list[tuple[int, Point]] = []
        self.weight = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def last_seq(self) -> int:
        """Number of its newest sample, -1 where it has none."""
        return self._samples[-1].seq if self._samples else -1

    @property
    def first_us(self) -> int:
        return self._samples[0].wall_us

    @property
    def last_us(self) -> int:
        return self._samples[-1].wall_us

    def append(self, row: bytes) -> None:
        """Take a row. Raises Damaged where it, or the sample it needs, cannot be read."""
        head = unsealed_samples.read_head(row)
        if head.seq != self.base_seq and self._base is None:
            raise Damaged("the first of the newest samples is missing")
        encoded = unsealed_samples.unpack(row, None if head.seq == self.base_seq else self._base)
        if head.seq == self.base_seq:
            self._base = encoded
        try:
            self._samples.append(decode_sample(encoded))
        except msgspec.DecodeError as error:
            raise Damaged(f"a sample cannot be read: {error}") from error
        self.weight += len(encoded)

    def samples(self) -> list[Sample]:
        """Every sample as it was recorded."""
        return list(self._samples)

    def walls(self) -> list[int]:
        return [sample.wall_us for sample in self._samples]

    def index_at(self, wall_us: int) -> int:
        return bisect_right(self.walls(), wall_us) - 1

    def picture(self, index: int) -> Picture:
        """What was known at that tick."""
        while len(self._pictures) <= index:
            before = self._pictures[-1] if self._pictures else Picture()
            self._pictures.append(before.with_sample(self._samples[len(self._pictures)]))
        return self._pictures[index]

    def points(self, point_of: Callable[[Picture], Point]) -> list[tuple[int, Point]]:
        """The chart values, made now: only a sealed block has them stored."""
        for index in range(len(self._points), len(self)):
            self._points.append((self._samples[index].wall_us, point_of(self.picture(index))))
        return self._points


CACHE_BYTES = 8 << 20
"""Decoded blocks kept, by their estimated weight: a console has 60 MB for all it does."""
CACHE_LEAST = 2


class Timeline:
    """Places 0, 1, 2, ... are blocks; the last ones may still grow. What is damaged raises Damaged when asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._index = BlockIndex()
        self._tails: list[TailBlock] = []
        self._kept: OrderedDict[int, BlockReader] = OrderedDict()
        self._bad: set[int] = set()
        self.row_errors: list[str] = []
        """What is wrong with rows of the newest samples."""

    def __len__(self) -> int:
        return len(self._index) + len(self._tails)

    @property
    def samples(self) -> int:
        """Samples in the index, those of blocks found damaged later included."""
        return self._index.samples + sum(len(block) for block in self._tails)

    @property
    def first_us(self) -> int | None:
        """Wall time of the first sample."""
        if len(self._index):
            return self._index.first_us[0]
        return self._tails[0].first_us if self._tails else None

    @property
    def last_us(self) -> int | None:
        """Wall time of the newest sample."""
        if self._tails:
            return self._tails[-1].last_us
        return self._index.last_us[-1] if len(self._index) else None

    def refresh(self) -> None:
        """Take in what was committed since. Raises Damaged."""
        for entry in self._source.blocks(self._index.last_seq):
            self._index.append(entry)
            self._tails = [block for block in self._tails if block.base_seq != entry.first_seq]
        newest = self._tails[-1].last_seq if self._tails else -1
        for row in self._source.tail(newest):
            try:
                self._take_row(row)
            except Damaged as error:
                self.row_errors.append(error.message)

    def _take_row(self, row: bytes) -> None:
        base_seq = unsealed_samples.read_head(row).base_seq
        if self._tails and self._tails[-1].base_seq == base_seq:
            self._tails[-1].append(row)
        else:
            block = TailBlock(base_seq)
            block.append(row)
            self._tails.append(block)

    def find_position(self, wall_us: int) -> int:
        """The block that time falls into or comes after, -1 where it is before all."""
        return self._index.find_position(wall_us, [(block.first_us, block.last_us) for block in self._tails])

    def starts(self, position: int) -> int:
        """Wall time of the first sample of a block."""
        sealed = len(self._index)
        return self._index.first_us[position] if position < sealed else self._tails[position - sealed].first_us

    def sealed_seq(self, position: int) -> int | None:
        """The number a sealed block is stored under, None for one that still grows."""
        return self._index.seqs[position] if position < len(self._index) else None

    def growing(self, position: int) -> TailBlock:
        """A block that is not sealed."""
        return self._tails[position - len(self._index)]

    def block(self, position: int) -> BlockReader | TailBlock:
        """The block at that place, decoded as far as it was needed so far. Raises Damaged."""
        seq = self.sealed_seq(position)
        if seq is None:
            return self.growing(position)
        if seq in self._bad:
            raise Damaged("a block of the recording is damaged")
        block = self._kept.get(seq)
        if block is None:
            block = self._kept[seq] = BlockReader(self._source.block(seq))
        self._kept.move_to_end(seq)
        while len(self._kept) > CACHE_LEAST and sum(kept.weight for kept in self._kept.values()) > CACHE_BYTES:
            self._kept.popitem(last=False)
        return block

    def mark_damaged(self, position: int) -> None:
        """Never ask for this block again: it cannot be decoded."""
        seq = self.sealed_seq(position)
        if seq is not None:
            self._bad.add(seq)
            self._kept.pop(seq, None)

    def forget(self) -> None:
        """Let go of what was decoded."""
        self._kept.clear()
