"""Numbers of findings and charts as people read them: what a field is called tells its unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dba_console.panels.cells import clean
from dba_console.panels.phrases import milliseconds
from dba_console.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct

Write = Callable[[float | None], str]


def _rate(value: float | None) -> str:
    return human_bytes(value, per_s=True)


def _per_s(value: float | None) -> str:
    return human_count(value, per_s=True)


def _per_min(value: float | None) -> str:
    return human_count(value) + ("" if value is None else "/min")


_UNITS: tuple[tuple[str, Write], ...] = (
    ("_bytes_per_s", _rate),
    ("_bytes", human_bytes),
    ("_pct", human_pct),
    ("avg10", human_pct),
    ("avg60", human_pct),
    ("_per_s", _per_s),
    ("_per_min", _per_min),
    ("_ms", milliseconds),
    ("_s", human_duration),
)
"""Endings of names and how such numbers are written, the longest ending first."""


def writer(name: str) -> tuple[str, Write]:
    """The ending of a name that tells its unit (empty: a plain number), and how its numbers are written.

    >>> writer("memory.cached_bytes")[0], writer("io.psi_full_pct")[1](61.0), writer("used")[1](244)
    ('_bytes', '61%', '244')
    """
    return next(((end, write) for end, write in _UNITS if name.endswith(end)), ("", human_count))


def quantity(name: str, value: Any) -> str:
    """A value of evidence with its unit; text as it is, made harmless; `?` where it is not known.

    >>> quantity("cached_fell_bytes", 4_402_341_478), quantity("pid", 81231), quantity("state", None)
    ('4.1 GB', '81231', '?')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        ending, write = writer(name)
        if ending or isinstance(value, float):
            return write(value)
        return f"{value:,}".replace(",", " ") if value >= 100_000 and not name.endswith("pid") else str(value)
    if isinstance(value, list):
        return ", ".join(clean(str(one))[:80] for one in value[:20])
    return clean(str(value))[:200]


def words_of(name: str) -> str:
    """A field's name without its unit, as words: what precedes the number.

    >>> words_of("cached_fell_bytes"), words_of("full_in_s"), words_of("used")
    ('cached fell', 'full in', 'used')
    """
    ending, _ = writer(name)
    kept = name.removesuffix(ending) if ending.startswith("_") else name
    return clean((kept or name).replace("_", " "))[:80]
