"""Positions in WAL: as text, and the distance of two."""

from __future__ import annotations

LAG_LEVELS_S = (10.0, 300.0)
"""Lag that panels show as a warning, and as critical; seconds."""


def lsn_text(lsn: int | None) -> str | None:
    """Return a position as PostgreSQL writes it.

    >>> lsn_text(0x2A_7F03_18C8)
    '2A/7F0318C8'
    """
    return None if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_distance(ahead: int | None, position: int | None) -> int | None:
    """Return the bytes from `position` to `ahead`; never below 0: the two are not read at the same time."""
    return None if ahead is None or position is None else max(0, ahead - position)
