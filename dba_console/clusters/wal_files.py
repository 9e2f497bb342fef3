"""Names of WAL segment files, and positions of their contents. Pure."""

from __future__ import annotations

import re

SEGMENT = 16 << 20
"""Size of a segment file, unless initdb was given another one."""
PAGE = 8192
_LONG_HEADER, _SHORT_HEADER = 40, 24
"""Sizes of the header of the first page of a segment, and of other pages (xlog_internal.h)."""
NAME = re.compile(r"[0-9A-F]{24}")


def segment_start(name: str, size: int = SEGMENT) -> int:
    """Return the position at which a segment begins.

    >>> segment_start("000000010000000200000003") == (2 << 32) + (3 << 24)
    True
    """
    return (int(name[8:16], 16) * (0x1_0000_0000 // size) + int(name[16:24], 16)) * size


def segment_end(name: str, timeline: int | None, size: int = SEGMENT) -> int | None:
    """Return the position at which a segment ends; None: not a segment of this timeline."""
    if not NAME.fullmatch(name) or timeline is None or int(name[:8], 16) != timeline:
        return None
    return segment_start(name, size) + size


def segment_name(timeline: int, position: int, size: int = SEGMENT) -> str:
    """Return the file that contains a position.

    >>> segment_name(1, (2 << 32) + (3 << 24) + 40)
    '000000010000000200000003'
    """
    number, per_log = position // size, 0x1_0000_0000 // size
    return f"{timeline:08X}{number // per_log:08X}{number % per_log:08X}"


def segment_names(timeline: int, begin: int, end: int, size: int = SEGMENT) -> list[str]:
    """Return the files with the bytes from `begin` up to, without, `end`.

    >>> segment_names(1, 0x1800000, 0x3000000)
    ['000000010000000000000001', '000000010000000000000002']
    """
    return [segment_name(timeline, number * size, size) for number in range(begin // size, -(-end // size))]


def record_end(start: int, length: int, size: int = SEGMENT) -> int:
    """Return where a WAL record ends: it continues behind the headers of the pages that it crosses.

    >>> hex(record_end(0x4656968, 400)), hex(record_end(0x1FF0, 32))
    ('0x4656af8', '0x2028')
    """
    at, left = start, length
    while (part := PAGE - at % PAGE) < left:
        at, left = at + part, left - part
        at += _LONG_HEADER if at % size == 0 else _SHORT_HEADER
    return (at + left + 7) // 8 * 8
