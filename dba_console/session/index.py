"""The index of blocks in memory: three numbers a block, found by time with a binary search."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from dba_console.session.source import BlockEntry


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
