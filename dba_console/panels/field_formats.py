"""Numbers of findings and charts as people read them: what a field is called tells its unit."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from dba_console.panels.phrases import milliseconds
from dba_console.panels.text_elements import clean, width
from dba_console.panels.time_formats import date_and_time, parse_rfc3339
from dba_console.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct

_MAX_NAME_WIDTH = 14
"""Cells of a name beside a chart."""
NumberFormat = Callable[[float | None], str]


def _bytes_rate_text(value: float | None) -> str:
    return human_bytes(value, per_s=True)


def _per_second_text(value: float | None) -> str:
    return human_count(value, per_s=True)


def _per_minute_text(value: float | None) -> str:
    return human_count(value) + ("" if value is None else "/min")


_UNITS: tuple[tuple[str, NumberFormat], ...] = (
    ("_bytes_per_s", _bytes_rate_text),
    ("_bytes", human_bytes),
    ("_pct", human_pct),
    ("avg10", human_pct),
    ("avg60", human_pct),
    ("_per_s", _per_second_text),
    ("_per_min", _per_minute_text),
    ("_ms", milliseconds),
    ("_s", human_duration),
)
"""Endings of names and how such numbers are written, the longest ending first."""


def unit_format(name: str) -> tuple[str, NumberFormat]:
    """The ending of a name that tells its unit (empty: a plain number), and how its numbers are written.

    >>> unit_format("memory.cached_bytes")[0], unit_format("io.psi_full_pct")[1](61.0), unit_format("used")[1](244)
    ('_bytes', '61%', '244')
    """
    return next(((end, write) for end, write in _UNITS if name.endswith(end)), ("", human_count))


def value_text(name: str, value: Any) -> str:
    """A value of evidence with its unit; text as it is, made harmless; `?` where it is not known.

    >>> value_text("cached_fell_bytes", 4_402_341_478), value_text("pid", 81231), value_text("state", None)
    ('4.1 GB', '81231', '?')
    """
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        ending, write = unit_format(name)
        if ending or isinstance(value, float):
            return write(value)
        return f"{value:,}".replace(",", " ") if value >= 100_000 and not name.endswith("pid") else str(value)
    if isinstance(value, list):
        return ", ".join(clean(str(one))[:80] for one in value[:20])
    moment_us = parse_rfc3339(value) if isinstance(value, str) else None
    return clean(str(value))[:200] if moment_us is None else date_and_time(moment_us)


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
        return field_label(name.rpartition(".")[2])
    subject, _, field = rest.rpartition(".")
    # A number names a cluster: there is but one on the screen.
    return field_label(field) if subject.isdigit() else f"{_shorten_name(clean(subject or kind))} {field_label(field)}"


def _shorten_name(name: str) -> str:
    """A name short enough to stand beside a chart: of a path the end tells more.

    >>> _shorten_name("/srv/postgresql/archive/disk"), _shorten_name("vda")
    ('…/archive/disk', 'vda')
    """
    if width(name) <= _MAX_NAME_WIDTH:
        return name
    while width(name) > _MAX_NAME_WIDTH - 1:
        name = name[1:]
    return "…" + name


def field_label(name: str) -> str:
    """A field's name without its unit, as words: what precedes the number.

    >>> field_label("cached_fell_bytes"), field_label("full_in_s"), field_label("used")
    ('cached fell', 'full in', 'used')
    """
    ending, _ = unit_format(name)
    kept = name.removesuffix(ending) if ending.startswith("_") else name
    return clean((kept or name).replace("_", " "))[:80]
