"""The newest samples, each stored as a row until their block is full.

Every row is durable when it is committed. The first of a block is complete; the others are compressed against it, so a
row can be read as long as the first one can.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import zstandard

from dba_console.recording.block_format import Damaged
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.sample import Part, Sample

MAGIC = b"DBCT"
_VERSION = 1
_LEVEL = 1
_LIMIT = 64 << 20
_HEAD = struct.Struct("<4sBxxxQqQI")
_CRC = struct.Struct("<I")
HEAD_SIZE = _HEAD.size + _CRC.size


class TailHead(NamedTuple):
    """Number of a row's sample, and of the first of its block, against which it is compressed (itself: none)."""

    seq: int
    wall_us: int
    base_seq: int


class TailWriter:
    """Packs the samples of one block."""

    def __init__(self) -> None:
        self._base_seq: int | None = None
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def pack(self, seq: int, wall_us: int, encoded: bytes) -> bytes:
        """Return the row of a sample. The others are compressed against the first one."""
        packed = self._compressor.compress(encoded)
        if self._base_seq is None:
            self._base_seq = seq
            self._compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=_dictionary(encoded))
        head = _HEAD.pack(MAGIC, _VERSION, seq, wall_us, self._base_seq, len(packed))
        return head + _CRC.pack(zlib.crc32(packed, zlib.crc32(head))) + packed


def read_head(row: bytes) -> TailHead:
    """Return the header of a row. Raises Damaged if it is truncated or its checksum does not match."""
    if len(row) < HEAD_SIZE or row[:4] != MAGIC:
        raise Damaged("a row of the newest samples has no valid header")
    _, version, seq, wall_us, base_seq, length = _HEAD.unpack_from(row)
    if version > _VERSION:
        raise Damaged(f"a row of the newest samples has format {version}; this program reads up to {_VERSION}")
    crc = zlib.crc32(memoryview(row)[HEAD_SIZE:], zlib.crc32(row[: _HEAD.size]))
    if len(row) != HEAD_SIZE + length or crc != _CRC.unpack_from(row, _HEAD.size)[0]:
        raise Damaged("a row of the newest samples does not match its checksum")
    return TailHead(seq, wall_us, base_seq)


def unpack(row: bytes, base: bytes | None) -> bytes:
    """Return the encoded sample of a row; `base`: the decompressed first sample of its block, None for that one."""
    read_head(row)
    packed = row[HEAD_SIZE:]
    try:
        if zstandard.frame_content_size(packed) > _LIMIT:
            raise Damaged("a row of the newest samples has an invalid size")
        plain = zstandard.ZstdDecompressor() if base is None else zstandard.ZstdDecompressor(_dictionary(base))
        return plain.decompress(packed, max_output_size=_LIMIT)
    except zstandard.ZstdError as error:
        raise Damaged(f"cannot decompress a row of the newest samples: {error}") from error


def _dictionary(encoded: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(encoded, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


# The key sample: what the first sample of a block must repeat, so that reading can start there.


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
