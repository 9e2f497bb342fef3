"""Numbers of findings and charts as people read them: what a field is called tells its unit."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from dba_console.panels.cells import clean, width
from dba_console.panels.phrases import milliseconds
from dba_console.panels.times import from_rfc3339, moment
from dba_console.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct

_NAME = 14
"""Cells of a name beside a chart."""
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
    if value is None or (isinstance(value, float) and not isfinite(value)):
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
    moment_us = from_rfc3339(value) if isinstance(value, str) else None
    return clean(str(value))[:200] if moment_us is None else moment(moment_us)


_TITLES = {
    "connections.used": "connections",
    "connections.active": "active sessions",
    "connections.idle": "idle sessions",
    "connections.waiting": "waiting for locks",
    "locks.waiting": "waiting for locks",
    "io.psi_full_pct": "I/O full stall",
    "io.psi_full_avg10": "I/O full stall",
    "io.psi_some_avg10": "I/O some stall",
    "io.procs_blocked": "blocked processes",
    "io.cpu_psi_some_avg10": "CPU some stall",
    "memory.psi_some_avg10": "memory some stall",
    "memory.psi_full_avg10": "memory full stall",
    "memory.refault_bytes_per_s": "read again",
    "replication.lag_bytes": "replication lag",
    "replication.lag_s": "replication lag",
    "replication.wal_bytes_per_s": "WAL written",
}
"""Series whose field alone does not say what it is of."""


def series_title(name: str) -> str:
    """What a charted series is, in words.

    >>> series_title("memory.cached_bytes"), series_title("mount:/pg.used_bytes"), series_title("ids:7710351.next_xid")
    ('cached', '/pg used', 'next xid')
    """
    if name in _TITLES:
        return _TITLES[name]
    kind, colon, rest = name.partition(":")
    if not colon:
        return words_of(name.rpartition(".")[2])
    subject, _, field = rest.rpartition(".")
    # A number names a cluster: there is but one on the screen.
    return words_of(field) if subject.isdigit() else f"{_end_of(clean(subject or kind))} {words_of(field)}"


def _end_of(name: str) -> str:
    """A name short enough to stand beside a chart: of a path the end tells more.

    >>> _end_of("/srv/postgresql/archive/disk"), _end_of("vda")
    ('…/archive/disk', 'vda')
    """
    if width(name) <= _NAME:
        return name
    while width(name) > _NAME - 1:
        name = name[1:]
    return "…" + name


def words_of(name: str) -> str:
    """A field's name without its unit, as words: what precedes the number.

    >>> words_of("cached_fell_bytes"), words_of("full_in_s"), words_of("used")
    ('cached fell', 'full in', 'used')
    """
    ending, _ = writer(name)
    kept = name.removesuffix(ending) if ending.startswith("_") else name
    return clean((kept or name).replace("_", " "))[:80]
