"""Format of a sealed block on disk: a header, and a compressed payload with a checksum; number encoding.

    magic  version  samples  first_seq  first_us  last_us  payload length  CRC-32 of all but itself  payload (zstd)

The header repeats the values of the database index, so that blocks found in a damaged file can be ordered.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import NamedTuple

import zstandard

from dba_console.core.errors import SessionError

# Damage is always a SessionError, never a traceback.


class Damaged(SessionError):
    """An unreadable part of a recording: truncated, overwritten, or with a wrong checksum."""


MAGIC = b"DBCB"
VERSION = 1
LEVEL = 12
"""zstd level. The payload is small (about 100 kB a minute), so a high level costs milliseconds."""
SEGMENT_SAMPLES = 30
"""Samples of a segment: the maximum that a seek decodes."""
PAYLOAD_LIMIT = 128 << 20
"""A larger payload is not decompressed: a recording may come from anywhere and must not exhaust memory."""

_HEAD = struct.Struct("<4sBxxxIQqqI")
_CRC = struct.Struct("<I")
HEAD_SIZE = _HEAD.size + _CRC.size


class BlockHead(NamedTuple):
    """Header of a block: number of samples, first tick, first and last wall time in microseconds."""

    samples: int
    first_seq: int
    first_us: int
    last_us: int


def pack(head: BlockHead, payload: bytes, level: int = LEVEL) -> bytes:
    """Return the block as bytes."""
    packed = zstandard.ZstdCompressor(level=level, write_content_size=True).compress(payload)
    start = _HEAD.pack(MAGIC, VERSION, *head, len(packed))
    return start + _CRC.pack(zlib.crc32(packed, zlib.crc32(start))) + packed


def read_head(block: bytes) -> BlockHead:
    """Return only the header; the payload may be missing. Raises Damaged."""
    if len(block) < HEAD_SIZE or block[:4] != MAGIC:
        raise Damaged("a block of the recording has no valid header")
    _, version, samples, first_seq, first_us, last_us, _ = _HEAD.unpack_from(block)
    if version > VERSION:
        raise Damaged(f"a block has format {version}; this program reads up to {VERSION}")
    return BlockHead(samples, first_seq, first_us, last_us)


def whole(block: bytes) -> bool:
    """Return whether the block is complete and its checksum matches."""
    if len(block) < HEAD_SIZE or block[:4] != MAGIC:
        return False
    length: int = _HEAD.unpack_from(block)[-1]
    (crc,) = _CRC.unpack_from(block, _HEAD.size)
    if len(block) != HEAD_SIZE + length:
        return False
    return bool(zlib.crc32(memoryview(block)[HEAD_SIZE:], zlib.crc32(block[: _HEAD.size])) == crc)


def unpack(block: bytes) -> tuple[BlockHead, bytes]:
    """Return header and payload. Raises Damaged if the checksum does not match or the payload is too large."""
    head = read_head(block)
    if not whole(block):
        raise Damaged("a block of the recording does not match its checksum")
    packed = block[HEAD_SIZE:]
    try:
        if zstandard.frame_content_size(packed) > PAYLOAD_LIMIT:
            raise Damaged("a block of the recording has an invalid size")
        payload = zstandard.ZstdDecompressor().decompress(packed, max_output_size=PAYLOAD_LIMIT)
    except zstandard.ZstdError as error:
        raise Damaged(f"cannot decompress a block of the recording: {error}") from error
    return head, payload


# Variable-length integers: seven bits per byte, lowest first (LEB128), signed ones zigzag-encoded.


def put(buffer: bytearray, number: int) -> None:
    """Append a number that is not negative."""
    while number > 127:
        buffer.append(number & 127 | 128)
        number >>= 7
    buffer.append(number)


def put_signed(buffer: bytearray, number: int) -> None:
    """Append a number of either sign; small magnitudes take one byte.

    >>> out = bytearray(); put_signed(out, -3); put_signed(out, 200); take_signed(out, 0), take_signed(out, 1)
    ((-3, 1), (200, 3))
    """
    put(buffer, number << 1 if number >= 0 else (-number << 1) - 1)


def take(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the number at `at` and the offset after it. Raises IndexError if the buffer ends."""
    byte = buffer[at]
    at += 1
    if byte < 128:
        return byte, at
    number, shift = byte & 127, 7
    while True:
        byte = buffer[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def take_signed(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the signed number at `at` and the offset after it. Raises IndexError if the buffer ends."""
    folded, at = take(buffer, at)
    return (folded >> 1 if not folded & 1 else -((folded + 1) >> 1)), at


# Tags of values in a column. Part of the format: never renumber.

NONE, FALSE, TRUE = 0, 1, 2
INT_OLD = 3
"""Difference to the previous value of this field."""
INT_LAST = 4
"""Difference to the last number written in this column, in any row."""
INT_STAMP = 5
"""Difference to the last timestamp written in this reading: query_start is near state_change."""
INT_KB = 6
"""Difference to the old value in units of 1024: memory is counted in pages."""
FLOAT_MILLI = 7
"""A float with at most three decimals, as a difference of thousandths."""
FLOAT = 8
"""Eight bytes, little endian."""
TEXT, BLOB = 9, 10
"""An index into the block's table of strings, each stored once."""
STRUCT = 11
"""A list of unchanged length: a mask of the changed fields, then those."""
LIST = 12
"""A list in full: its length, then every element."""
MAP, NEW_MAP = 13, 14
"""A map with the same keys (mask), or with new ones."""
TABLE = 15
"""A list of rows, each identified by its first field: rows in order, then the changed rows."""
SAME = 16
PACKED = 17
"""Any other value, as MessagePack in the table of strings."""

STAMP_FROM = 1 << 49
"""Microseconds since 1970 are above this from 1987 on: such a number may be a timestamp."""

THOUSAND = 1000
FLOAT_MILLI_LIMIT = 1e12
"""Above this, a thousandth is not exact in a double."""


def milli(value: float) -> int | None:
    """Return the float as thousandths, None if that does not convert back to the same float."""
    if not -FLOAT_MILLI_LIMIT < value < FLOAT_MILLI_LIMIT:
        return None
    milli = round(value * THOUSAND)
    if milli == 0 and math.copysign(1.0, value) < 0:
        return None
    return milli if milli / THOUSAND == value else None
