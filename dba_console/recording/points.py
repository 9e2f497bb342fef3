"""Chart values of a block (two minutes of samples) as columns, so that charts load without decoding a sample.

A column of whole numbers is stored exactly, as differences. Other values have 16 bits of mantissa, 1/65,000, finer than
any chart. A tick without a value has a gap, not 0.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import accumulate
from mmap import mmap

import msgspec
import zstandard

from dba_console.core.decoding import packed_decoder
from dba_console.core.errors import Damaged
from dba_console.watch.frames.picture import Picture

Point = dict[str, float]

MAGIC = b"DBCP"
_LEVEL = 12
_LIMIT = 16 << 20
_WHOLE_LIMIT = float(1 << 53)
_float = struct.Struct("<f")
_HEAD = struct.Struct("<4sQII")


class _Packed(msgspec.Struct, array_like=True):
    """Compressed content: wall times as differences, then one column per name."""

    walls: list[int]
    names: list[str]
    gaps: list[list[int]]
    """Ticks without a value."""
    columns: list[list[int] | bytes]
    """Whole numbers as differences, or the byte planes of other values."""


_encode = msgspec.msgpack.Encoder().encode
_decode = packed_decoder(_Packed).decode


def default_point_of() -> Callable[[Picture], Point]:
    """Return the chart values of the screen; imported when first needed."""
    from dba_console.watch.frames.chart_points import point_of

    return point_of


def pack_points(first_seq: int, walls: Sequence[int], points: Sequence[Point]) -> bytes:
    """Encode the points of a block, with its first tick; `walls`: wall times of its ticks in microseconds."""
    names = sorted({name for point in points for name in point})
    packed = _Packed(_differences(walls), names, [], [])
    for name in names:
        values = [point.get(name) for point in points]
        finite = [value for value in values if value is not None and math.isfinite(value)]
        whole = all(value == int(value) and abs(value) < _WHOLE_LIMIT for value in finite)
        packed.gaps.append([tick for tick, value in enumerate(values) if value is None or not math.isfinite(value)])
        packed.columns.append(_differences([int(value) for value in finite]) if whole else _float_column(finite))
    body = zstandard.ZstdCompressor(level=_LEVEL).compress(_encode(packed))
    return _HEAD.pack(MAGIC, first_seq, len(body), zlib.crc32(body)) + body


def points_at(data: bytes | mmap, at: int) -> tuple[int, int] | None:
    """Return the first tick of the chart values at an offset, and their bytes; None if there are none."""
    if data[at : at + 4] != MAGIC or len(data) < at + _HEAD.size:
        return None
    _, first_seq, length, _ = _HEAD.unpack_from(data, at)
    return first_seq, _HEAD.size + length


def unpack_points(data: bytes) -> list[tuple[int, Point]]:
    """Return wall time and point of every tick. Raises Damaged."""
    body = data[_HEAD.size :]
    if data[:4] != MAGIC or len(data) < _HEAD.size or zlib.crc32(body) != _HEAD.unpack_from(data)[3]:
        raise Damaged("the chart values of a block do not match their checksum")
    try:
        if zstandard.frame_content_size(body) > _LIMIT:
            raise Damaged("the chart values of a block have an invalid size")
        packed = _decode(zstandard.ZstdDecompressor().decompress(body, max_output_size=_LIMIT))
        return _rows(packed)
    except (zstandard.ZstdError, msgspec.DecodeError, IndexError, ValueError, OverflowError, struct.error) as error:
        raise Damaged(f"cannot decode the chart values of a block: {error}") from error


def _rows(packed: _Packed) -> list[tuple[int, Point]]:
    walls = list(accumulate(packed.walls))
    points: list[Point] = [{} for _ in walls]
    for name, gaps, column in zip(packed.names, packed.gaps, packed.columns, strict=True):
        missing = set(gaps)
        ticks = [tick for tick in range(len(walls)) if tick not in missing]
        values = accumulate(column) if isinstance(column, list) else _read_floats(column, len(ticks))
        for tick, value in zip(ticks, values, strict=True):
            points[tick][name] = float(value)
    return list(zip(walls, points, strict=True))


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for value, before in zip(values, (0, *values), strict=False)]


def _float_column(values: Sequence[float]) -> bytes:
    """Return the upper three bytes of the single-precision value as separate byte planes, which compress better."""
    words = []
    for value in values:
        try:
            words.append(_float.pack(value))
        except OverflowError:
            words.append(_float.pack(math.copysign(3.4e38, value)))
    return b"".join(bytes(word[plane] for word in words) for plane in (3, 2, 1))


def _read_floats(column: bytes, count: int) -> list[float]:
    top, middle, low = (column[plane * count : (plane + 1) * count] for plane in range(3))
    return [_float.unpack(bytes((0, low[i], middle[i], top[i])))[0] for i in range(count)]
