"""Blocks of samples, two minutes each: one compressed stream in records with a checksum.

    magic  seq  first seq of the block  wall time  position in the block  size  compressed size  CRC-32  compressed

They are appended to `session.samples`; a full block is followed by its chart values (points), then the next one starts.

A record holds one sample as MessagePack; the samples before it in the block are its dictionary (one zstd stream,
flushed after each sample). So a record is durable as soon as it is written, and a damaged block can be read up to the
damage. The first sample of a block is a key sample: reading can start there.
"""

from __future__ import annotations

import io
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from mmap import mmap
from typing import NamedTuple

import msgspec
import zstandard

from dba_console.core.errors import Damaged
from dba_console.recording.points import Point
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import Part, Sample, decode_sample

MAGIC = b"DBS1"
WINDOW_LOG = 20
"""The stream refers back at most this far (1 MB): it is memory of the agent and of every reader."""
_PARAMETERS = zstandard.ZstdCompressionParameters.from_level(
    6, window_log=WINDOW_LOG, hash_log=17, chain_log=18, min_match=4, search_log=5
)
"""Level 6 with smaller tables: 2.4 MB of memory, 0.09 ms a sample. Level 3 needs 11 % more space; level 12 saves 1 %
and takes four times as long."""
BLOCK_BYTES = 8 << 20
"""Uncompressed size at which a block is full: a reader may hold all of it."""
BLOCK_LIMIT = 128 << 20
"""More of a block is not decompressed: a recording may come from anywhere and must not exhaust memory."""

_HEAD = struct.Struct("<4sQQqIII")
_CRC = struct.Struct("<I")
HEAD_SIZE = _HEAD.size + _CRC.size


class BlockEntry(NamedTuple):
    """A line of the block index: what the block holds, and where it is in `session.samples`."""

    first_seq: int
    samples: int
    first_us: int
    last_us: int
    at: int
    size: int
    """Bytes of its records."""
    points_size: int
    """Bytes of its chart values, which follow the records."""

    @property
    def end(self) -> int:
        """Return the offset after the block."""
        return self.at + self.size + self.points_size


class SampleRecord(NamedTuple):
    """A record: its sample's number, the number of its block's first sample, and its position in the block."""

    seq: int
    base_seq: int
    wall_us: int
    position: int
    size: int
    """Bytes of the sample before compression."""
    packed: bytes

    @classmethod
    def read(cls, data: bytes | mmap, at: int = 0) -> SampleRecord:
        """Return the record at an offset. Raises Damaged if it is truncated or its checksum does not match."""
        body = at + HEAD_SIZE
        if len(data) < body or data[at : at + 4] != MAGIC:
            raise Damaged("a sample of the recording has no valid header")
        _, seq, base_seq, wall_us, position, size, length = _HEAD.unpack_from(data, at)
        packed = data[body : body + length]
        crc = zlib.crc32(packed, zlib.crc32(data[at : at + _HEAD.size]))
        if len(packed) != length or crc != _CRC.unpack_from(data, at + _HEAD.size)[0]:
            raise Damaged("a sample of the recording does not match its checksum")
        return cls(seq, base_seq, wall_us, position, size, packed)

    @property
    def end(self) -> int:
        """Return the bytes of the record."""
        return HEAD_SIZE + len(self.packed)


def scan_records(data: bytes | mmap) -> Iterator[tuple[int, SampleRecord]]:
    """Yield every readable record with its offset; what is damaged is skipped."""
    at = 0
    while (at := data.find(MAGIC, at)) >= 0:
        try:
            record = SampleRecord.read(data, at)
        except Damaged:
            at += 1
            continue
        yield at, record
        at += record.end


class BlockWriter:
    """Packs samples; `restart` begins the next block."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(compression_params=_PARAMETERS)
        self.restart()

    def restart(self) -> None:
        """Begin an empty block."""
        self._stream = self._compressor.compressobj()
        self.samples = 0
        self.size = 0
        """Bytes of its samples before compression."""
        self.base_seq = 0

    def add(self, seq: int, wall_us: int, encoded: bytes) -> bytes:
        """Return the record of the next sample."""
        if not self.samples:
            self.base_seq = seq
        packed = self._stream.compress(encoded) + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        head = _HEAD.pack(MAGIC, seq, self.base_seq, wall_us, self.samples, len(encoded), len(packed))
        self.samples += 1
        self.size += len(encoded)
        return head + _CRC.pack(zlib.crc32(packed, zlib.crc32(head))) + packed


class SampleBlock:
    """Consecutive records of one block, decoded on demand as far as needed. Those after a damaged one are ignored."""

    def __init__(self, data: bytes) -> None:
        """Raises Damaged if not even the first record of the block can be read."""
        self.damage: Damaged | None = None
        """Why later records of `data` cannot be read."""
        self.weight = 0
        """Approximate bytes of memory."""
        self.walls: list[int] = []
        """Wall time of every tick."""
        self.last_seq = -1
        self._records: list[SampleRecord] = []
        self._feed = io.BytesIO()
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG)
        self._stream = decompressor.stream_reader(self._feed)
        self._decoded_bytes = 0
        self._samples: list[Sample] = []
        self._pictures: list[Picture] = []
        self._points: list[tuple[int, Point]] = []
        at = 0
        while at < len(data):
            try:
                record = SampleRecord.read(data, at)
                self.append(record)
            except Damaged as error:
                self.damage = error
                break
            at += record.end
        if not self._records:
            raise self.damage or Damaged("a block of the recording is empty")

    def __len__(self) -> int:
        return len(self._records)

    @property
    def span(self) -> tuple[int, int, int, int]:
        """Return number of the first sample, number of samples, first and last time: the start of its index line."""
        return self.base_seq, len(self), self.walls[0], self.walls[-1]

    @property
    def base_seq(self) -> int:
        """Return the number of its first sample."""
        return self._records[0].seq

    def append(self, record: SampleRecord) -> None:
        """Add the next record. Raises Damaged if one before it is missing."""
        base_seq = self.base_seq if self._records else record.seq
        if record.position != len(self._records) or record.base_seq != base_seq:
            raise Damaged("a sample of the recording is missing")
        self._records.append(record)
        self.walls.append(record.wall_us)
        self.last_seq = record.seq
        self.weight += record.size

    def samples(self) -> list[Sample]:
        """Return every sample as it was recorded. Raises Damaged."""
        self._decode(len(self) - 1)
        return list(self._samples)

    def readable_samples(self) -> list[Sample]:
        """Return the samples before the first damaged one."""
        try:
            self._decode(len(self) - 1)
        except Damaged as error:
            self.damage = self.damage or error
        return list(self._samples)

    def index_at(self, wall_us: int) -> int:
        """Return the last tick not after `wall_us`, -1 if all are."""
        return bisect_right(self.walls, wall_us) - 1

    def picture(self, index: int) -> Picture:
        """Return the picture at that tick: the last two readings of every part. Raises Damaged."""
        self._decode(index)
        while len(self._pictures) <= index:
            before = self._pictures[-1] if self._pictures else Picture()
            self._pictures.append(before.with_sample(self._samples[len(self._pictures)]))
        return self._pictures[index]

    def points(self, point_of: Callable[[Picture], Point]) -> list[tuple[int, Point]]:
        """Compute the chart values: only a full block has them stored. Raises Damaged."""
        for index in range(len(self._points), len(self)):
            self._points.append((self.walls[index], point_of(self.picture(index))))
        return self._points

    def _decode(self, index: int) -> None:
        while len(self._samples) <= index:
            record = self._records[len(self._samples)]
            self._decoded_bytes += record.size
            if self._decoded_bytes > BLOCK_LIMIT:
                raise Damaged("a block of the recording has an invalid size")
            self._feed.write(record.packed)
            self._feed.seek(-len(record.packed), io.SEEK_CUR)
            try:
                encoded = self._stream.read(record.size)
                self._samples.append(decode_sample(encoded))
            except (zstandard.ZstdError, msgspec.DecodeError) as error:
                raise Damaged(f"cannot decode a sample of the recording: {error}") from error


def key_sample(sample: Sample, picture: Picture) -> Sample:
    """Return `sample` with the last two readings and the newest status of every known part.

    `picture` is the one after `sample`. Each part keeps its read time; adding the key sample to an empty picture gives
    the same readings as adding everything before it.
    """
    parts: list[Part] = []
    for name, latest in picture.latest.items():
        latest_parts = {latest.part.at_us: latest.part}
        for readings in (picture.current, picture.previous):
            if name in readings:
                part = readings[name].part
                latest_parts.setdefault(part.at_us, part)
        parts.extend(latest_parts[at_us] for at_us in sorted(latest_parts))
    return Sample(sample.seq, sample.wall_us, sample.mono_us, parts, sample.boot)
