"""The schedule of the quiet hour, in minutes and scaled to any duration. Pure.

It contains only what a healthy host does on a working day. Nothing in it is an incident, so every finding of the
console must be justified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """An activity that starts `at_s` seconds into the run; it lasts `lasts_s` unless it ends on its own."""

    at_s: float
    name: str
    lasts_s: float


_ONCE: tuple[tuple[float, str, float], ...] = (
    # minute, activity, duration in minutes (0: until it ends on its own)
    (2.0, "standby connected", 20.0),
    (24.0, "standby connected", 35.0),
    # the application: nothing, low, moderate, full speed with pauses, clients that reconnect, nothing
    (4.0, "low load", 6.0),
    (10.0, "moderate load", 6.0),
    (16.0, "full speed", 0.8),
    (17.8, "full speed", 0.5),
    (20.0, "reconnecting clients", 5.0),
    (25.0, "moderate load", 4.0),
    (31.5, "low load", 4.5),
    (36.0, "moderate load", 9.0),
    (45.5, "full speed", 0.5),
    (46.5, "full speed", 0.3),
    (47.3, "full speed", 0.7),
    (50.0, "reconnecting clients", 3.0),
    (53.0, "low load", 4.0),
    # pools: filled slowly, filled at once, and reconnecting after the restart
    (8.0, "pool filled in half a minute", 11.0),
    (27.0, "pool filled at once", 20.0),
    # maintenance of the server
    (6.8, "vacuum", 0.0),
    (7.3, "analyze", 0.0),
    (12.5, "create index", 0.0),
    (13.4, "vacuum full of a small table", 0.0),
    (19.0, "reindex concurrently", 0.0),
    (22.5, "vacuum freeze", 0.0),
    (30.0, "restart", 0.0),
    (33.0, "reload that changes nothing", 0.0),
    (34.0, "log rotation", 0.0),
    (35.0, "statistics reset", 0.0),
    (40.5, "base backup", 0.0),
    (43.5, "create and drop a database", 0.0),
    (49.0, "vacuum full of a small table", 0.0),
    (54.0, "statistics reset", 0.0),
    # manual dumps beside the regular ones, and restores of them
    (9.0, "parallel dump", 0.0),
    (14.2, "parallel restore", 0.0),
    (37.5, "parallel dump", 0.0),
    (41.8, "parallel restore", 0.0),
    # data is loaded and removed
    (11.2, "bulk load", 0.0),
    (15.3, "truncate", 0.0),
    (26.0, "bulk load", 0.0),
    (29.0, "drop table", 0.0),
    (48.5, "drop table", 0.0),
    (56.0, "truncate", 0.0),
    # other work on the host; and the console itself misses some ticks, as on a suspended host
    (21.3, "console held up", 0.2),
    (18.8, "build", 0.0),
    (28.0, "big file written and removed", 0.0),
    (39.5, "build", 0.0),
    (44.5, "program takes memory", 0.6),
    (51.5, "program takes memory", 1.0),
    (52.5, "big file written and removed", 0.0),
    (57.0, "build", 0.0),
)

_REPEATED: tuple[tuple[float, float, str, float], ...] = (
    # first minute, interval in minutes, activity, duration in minutes
    (5.0, 8.0, "regular dump", 0.0),
    (3.5, 7.0, "checkpoint", 0.0),
    (4.5, 6.5, "short idle transaction", 0.13),
    (6.0, 9.0, "longer idle transaction", 0.3),
    (5.5, 4.0, "short lock waits", 0.4),
    (10.5, 12.0, "quick schema change", 0.0),
    (7.7, 9.0, "big sort", 0.0),
    (9.5, 11.0, "wal switch", 0.0),
    (8.5, 10.0, "old archive removed", 0.0),
    (3.0, 5.0, "operator looks", 0.5),
)


def quiet_hour() -> list[Entry]:
    """Return the full hour in order of time."""
    entries = [Entry(at * 60, name, lasts * 60) for at, name, lasts in _ONCE]
    entries += [Entry(at * 60, name, lasts * 60) for at, name, lasts in _repeated()]
    return sorted(entries)


def schedule(span_s: float) -> list[Entry]:
    """Return the hour scaled to `span_s` seconds: the same activities in the same order.

    >>> schedule(60.0)[0]
    Entry(at_s=2.0, name='standby connected', lasts_s=20.0)
    """
    factor = span_s / HOUR_S
    return [Entry(entry.at_s * factor, entry.name, entry.lasts_s * factor) for entry in quiet_hour()]


def names() -> set[str]:
    """Return the names of all activities of the hour."""
    return {entry.name for entry in quiet_hour()}


def _repeated() -> Iterator[tuple[float, str, float]]:
    for first, every, name, lasts in _REPEATED:
        at = first
        while at < 58.0:
            yield at, name, lasts
            at += every
