"""The newest samples of a recording, read like a block although they are not one yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Sample, decode_sample
from dba_console.session import unsealed_samples
from dba_console.session.damage import Damaged
from dba_console.session.points import Point


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
