"""A sealed block read back. Only the segment that a question is about is decoded."""

from __future__ import annotations

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Sample
from dba_console.session.blockformat import unpack
from dba_console.session.damage import Damaged
from dba_console.session.segmentreader import SegmentReader
from dba_console.session.varint import take

DECODED = 24
"""Bytes in memory for a byte of payload: measured with tracemalloc on a minute of 220 sessions (1.8 MB)."""


class BlockReader:
    """One block. Raises Damaged at once when its checksum does not hold, or later where its content cannot be."""

    def __init__(self, block: bytes) -> None:
        self.head, payload = unpack(block)
        self.weight = DECODED * len(payload)
        """Bytes it takes in memory once all of it is decoded, roughly."""
        self._firsts: list[int] = []
        """Wall time at which each segment begins."""
        self._segments: list[SegmentReader] = []
        try:
            self._divide(payload)
        except IndexError as error:
            raise Damaged("a block of the recording cannot be read: its segments are cut") from error

    def _divide(self, payload: bytes) -> None:
        count, at = take(payload, 0)
        sizes: list[tuple[int, int]] = []
        for _ in range(count):
            samples, at = take(payload, at)
            offset_us, at = take(payload, at)
            size, at = take(payload, at)
            self._firsts.append(self.head.first_us + offset_us)
            sizes.append((samples, size))
        for samples, size in sizes:
            self._segments.append(SegmentReader(payload[at : at + size], samples))
            at += size
        if sum(samples for samples, _ in sizes) != self.head.samples or not sizes:
            raise Damaged("a block of the recording cannot be read: samples are missing in it")

    def __len__(self) -> int:
        return self.head.samples

    def samples(self) -> list[Sample]:
        """Every sample as it was recorded."""
        return [segment.sample(index) for segment in self._segments for index in range(len(segment))]

    def walls(self) -> list[int]:
        """The wall time of every tick."""
        return [segment.wall_us(index) for segment in self._segments for index in range(len(segment))]

    def index_at(self, wall_us: int) -> int:
        """The last tick not after `wall_us`, -1 where all are. Decodes no further than needed."""
        before = 0
        for number, segment in enumerate(self._segments):
            last = number + 1 == len(self._segments)
            if last or self._firsts[number + 1] > wall_us:
                for index in range(len(segment)):
                    if segment.wall_us(index) > wall_us:
                        return before + index - 1
                return before + len(segment) - 1
            before += len(segment)
        return -1

    def picture(self, index: int) -> Picture:
        """What was known at that tick: the last two readings of every part."""
        for segment in self._segments:
            if index < len(segment):
                return segment.picture(index)
            index -= len(segment)
        raise Damaged("a block of the recording has no such sample")
