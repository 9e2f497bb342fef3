"""A sealed block on disk: a head that says what it holds, and a compressed payload guarded by a checksum.

    magic  version  samples  first_seq  first_us  last_us  payload length  CRC-32 of all but itself  payload (zstd)

The head repeats what the index of the database says, so that blocks found in a damaged file can be put in order again.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import zstandard

from dba_console.session.damage import Damaged

MAGIC = b"DBCB"
VERSION = 1
LEVEL = 12
"""zstd level. The payload is small already (some 100 kB a minute), so a high one costs milliseconds."""
SEGMENT_SAMPLES = 30
"""Samples of a segment: what a seek decodes at most."""
PAYLOAD_LIMIT = 128 << 20
"""A larger payload is not unpacked: a recording may come from anywhere, and memory is not its to ask for."""

_HEAD = struct.Struct("<4sBxxxIQqqI")
_CRC = struct.Struct("<I")
HEAD_SIZE = _HEAD.size + _CRC.size


class BlockHead(NamedTuple):
    """What a block holds: number of samples, first tick, first and last wall time in microseconds."""

    samples: int
    first_seq: int
    first_us: int
    last_us: int


def pack(head: BlockHead, payload: bytes, level: int = LEVEL) -> bytes:
    """The block as bytes."""
    packed = zstandard.ZstdCompressor(level=level, write_content_size=True).compress(payload)
    start = _HEAD.pack(MAGIC, VERSION, *head, len(packed))
    return start + _CRC.pack(zlib.crc32(packed, zlib.crc32(start))) + packed


def read_head(block: bytes) -> BlockHead:
    """The head alone; the payload may be missing. Raises Damaged."""
    if len(block) < HEAD_SIZE or block[:4] != MAGIC:
        raise Damaged("a block of the recording has no readable head")
    _, version, samples, first_seq, first_us, last_us, _ = _HEAD.unpack_from(block)
    if version > VERSION:
        raise Damaged(f"a block has format {version}; this program reads up to {VERSION}")
    return BlockHead(samples, first_seq, first_us, last_us)


def whole(block: bytes) -> bool:
    """True where the block is complete and its checksum holds."""
    if len(block) < HEAD_SIZE or block[:4] != MAGIC:
        return False
    length: int = _HEAD.unpack_from(block)[-1]
    (crc,) = _CRC.unpack_from(block, _HEAD.size)
    if len(block) != HEAD_SIZE + length:
        return False
    return bool(zlib.crc32(memoryview(block)[HEAD_SIZE:], zlib.crc32(block[: _HEAD.size])) == crc)


def unpack(block: bytes) -> tuple[BlockHead, bytes]:
    """Head and payload. Raises Damaged where the checksum does not hold or the payload is out of measure."""
    head = read_head(block)
    if not whole(block):
        raise Damaged("a block of the recording does not match its checksum")
    packed = block[HEAD_SIZE:]
    try:
        if zstandard.frame_content_size(packed) > PAYLOAD_LIMIT:
            raise Damaged("a block of the recording claims an impossible size")
        payload = zstandard.ZstdDecompressor().decompress(packed, max_output_size=PAYLOAD_LIMIT)
    except zstandard.ZstdError as error:
        raise Damaged(f"a block of the recording cannot be unpacked: {error}") from error
    return head, payload
