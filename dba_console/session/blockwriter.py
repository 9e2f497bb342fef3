"""A block of a recording while it grows: samples in, one compressed unit out.

Samples are added as they come and at once reduced to what changed, so that sealing is only the compression. A sealed
block stands by itself: nothing before it is needed to read it. Within it, every segment can be decoded without those
before, which halves the time of a seek; compressed as one, repeating its beginning costs next to nothing.
"""

from __future__ import annotations

from dba_console.samples.sample import Sample
from dba_console.session.blockformat import LEVEL, SEGMENT_SAMPLES, BlockHead, pack
from dba_console.session.segmentwriter import SegmentWriter
from dba_console.session.varint import put


class BlockWriter:
    """The samples of one block. Those for which `wants_key` was true are to be key samples."""

    def __init__(self) -> None:
        self.samples = 0
        self.first_seq = 0
        self.first_us = 0
        self.last_us = 0
        self._segments: list[tuple[int, SegmentWriter]] = []

    @property
    def wants_key(self) -> bool:
        """True where the next sample begins a segment."""
        return self.samples % SEGMENT_SAMPLES == 0

    def add(self, sample: Sample) -> None:
        """Append a sample; its wall time is not before the last one's."""
        if self.samples == 0:
            self.first_seq, self.first_us = sample.seq, sample.wall_us
        if self.wants_key:
            self._segments.append((sample.wall_us, SegmentWriter()))
        self._segments[-1][1].add(sample)
        self.samples += 1
        self.last_us = sample.wall_us

    def seal(self) -> bytes:
        """The block as it is stored. The writer is not used afterwards."""
        head = BlockHead(self.samples, self.first_seq, self.first_us, self.last_us)
        start, body = bytearray(), bytearray()
        put(start, len(self._segments))
        for first_us, segment in self._segments:
            payload = segment.payload()
            put(start, segment.samples)
            put(start, max(0, first_us - self.first_us))
            put(start, len(payload))
            body += payload
        return pack(head, bytes(start + body), LEVEL)
