"""A sealed block on disk: a head that says what it holds, and a compressed payload guarded by a checksum.

    magic  version  samples  first_seq  first_us  last_us  payload length  CRC-32 of all but itself  payload (zstd)

The head repeats what the index of the database says, so that blocks found in a damaged file can be put in order again.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import NamedTuple

import zstandard

from dba_console.core.errors import SessionError

# Damage: what a reader finds where a recording should be. Always a SessionError, never a traceback.


class Damaged(SessionError):
    """A piece of a recording that cannot be read: cut short, overwritten, or not what its checksum says."""


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


# Whole numbers in as few bytes as they need: seven bits a byte, lowest first (LEB128), signs folded in (zigzag).


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
    """The number at `at` and the place after it. Raises IndexError where the buffer ends first."""
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
    """The signed number at `at` and the place after it. Raises IndexError where the buffer ends first."""
    folded, at = take(buffer, at)
    return (folded >> 1 if not folded & 1 else -((folded + 1) >> 1)), at


# How a value is written in a column: signs that writer and reader agree on. Part of the format: never renumber.

NONE, FALSE, TRUE = 0, 1, 2
INT_OLD = 3
"""Difference to the value this field had before."""
INT_LAST = 4
"""Difference to the number last written in this column, whatever row it was in."""
INT_STAMP = 5
"""Difference to the moment last written in this reading: query_start lies near state_change."""
INT_KB = 6
"""Difference to the old value in units of 1024: memory is counted in pages."""
FLOAT_MILLI = 7
"""A float with at most three decimals, as a difference of thousandths."""
FLOAT = 8
"""Eight bytes, little endian."""
TEXT, BLOB = 9, 10
"""An index into the block's table of strings, each stored once."""
STRUCT = 11
"""A list of the length it had: a mask of the fields that changed, then those."""
LIST = 12
"""A list in full: its length, then every element."""
MAP, NEW_MAP = 13, 14
"""A map with the keys it had (mask), or with new ones."""
TABLE = 15
"""A list of rows, each known by its first field: which rows in what order, then the rows that changed."""
SAME = 16
PACKED = 17
"""Any other value, as its MessagePack in the table of strings."""

STAMP_FROM = 1 << 49
"""Microseconds since 1970 are above this from 1987 on: such a number may be a moment."""

THOUSAND = 1000
FLOAT_MILLI_LIMIT = 1e12
"""Above this a thousandth is not exact in a double."""


def milli(value: float) -> int | None:
    """The float as thousandths, None where that would not give the same float back."""
    if not -FLOAT_MILLI_LIMIT < value < FLOAT_MILLI_LIMIT:
        return None
    milli = round(value * THOUSAND)
    if milli == 0 and math.copysign(1.0, value) < 0:
        return None
    return milli if milli / THOUSAND == value else None
