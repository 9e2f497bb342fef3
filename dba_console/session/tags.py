"""How a value is written in a column: signs that writer and reader agree on. Part of the format: never renumber."""

from __future__ import annotations

import math

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
