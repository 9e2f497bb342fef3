"""The index of sealed blocks in memory: four numbers a block, found by time with a binary search."""

from __future__ import annotations

from array import array
from bisect import bisect_right

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

    def place(self, wall_us: int) -> int:
        """The last block that begins at or before that time, -1 where all begin later."""
        if self._ascending:
            return bisect_right(self.first_us, wall_us) - 1
        # The host's clock was set back meanwhile: the order of blocks is not that of their times.
        for place in range(len(self.first_us) - 1, -1, -1):
            if self.first_us[place] <= wall_us:
                return place
        return -1
