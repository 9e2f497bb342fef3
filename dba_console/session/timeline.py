"""The blocks of a recording in the order of time: an index of the sealed ones, the newest samples behind them.

Sealed blocks are decoded when asked for, and a few are kept.
"""

from __future__ import annotations

from collections import OrderedDict

from dba_console.session import unsealed_samples
from dba_console.session.blockreader import BlockReader
from dba_console.session.damage import Damaged
from dba_console.session.index import BlockIndex
from dba_console.session.source import Source
from dba_console.session.unsealed_block import TailBlock

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
