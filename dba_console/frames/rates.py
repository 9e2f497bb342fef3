"""Rates from counters, and when there is none to be had.

The rule of this file: two readings are subtracted only if nothing came between them that makes the difference a lie.
The first tick, a gap, a restart of the server, a reset of its statistics or another run of the agent give None, never
0, and never one average over all that was missed.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from dba_console.frames.panel_status import stale_after_s
from dba_console.frames.picture import Picture
from dba_console.samples import host, postgres
from dba_console.samples.registry import PARTS

T = TypeVar("T")

GAP_TICKS = 3
"""Readings further apart than so many of their intervals have a gap between them."""
LONGEST_TICK_S = 60.0
"""No agent ticks more slowly than this; two samples further apart are not neighbours."""
USER_HZ = 100
"""Ticks of /proc/stat and /proc/PID/stat per second: 100 on every Linux architecture PostgreSQL runs on (time(7))."""
_WRAP = 1 << 32


class Pair(NamedTuple, Generic[T]):
    """Two readings that may be subtracted, and the seconds between them."""

    new: T
    old: T
    seconds: float


def pair(picture: Picture, name: str, kind: type[T]) -> Pair[T] | None:
    """The last two readings of a part where their difference means something now, else None.

    What was read last before the connection was lost says nothing of the rate since; a level is shown with its age.
    """
    new, old = picture.now(name, kind), picture.before(name, kind)
    seconds = picture.elapsed_s(name)
    if new is None or old is None or seconds is None or seconds <= 0 or seconds > gap_s(picture, name):
        return None
    if (picture.age_s(name) or 0.0) > stale_after_s(picture, name):
        return None
    if name.startswith("pg.") and _server_started_between(picture, name):
        return None
    if _reset_between(new, old):
        return None
    return Pair(new, old, seconds)


def gap_s(picture: Picture, name: str) -> float:
    """How far apart two readings of the part may be, in seconds, before it counts as a gap."""
    kind = PARTS.get(name)
    every_s = 1.0 if kind is None else float(kind.every_s)
    tick_s = min(picture.tick_us / 1e6, LONGEST_TICK_S)
    return GAP_TICKS * max(every_s, tick_s)


def _server_started_between(picture: Picture, name: str) -> bool:
    """Whether the server's start lies between the last two readings, on the monotonic clock of the agent."""
    server = picture.current.get("pg.server")
    reading = None if server is None else server.value()
    if server is None or not isinstance(reading, postgres.Server):
        return False
    started_us = server.part.at_us - (reading.now_us - reading.start_us)
    return picture.previous[name].part.at_us < started_us <= picture.current[name].part.at_us


def _reset_between(new: object, old: object) -> bool:
    """Whether what counts was exchanged: statistics reset, host booted anew, another postmaster, a promotion."""
    if isinstance(new, postgres.Wal | postgres.Archiver) and isinstance(old, postgres.Wal | postgres.Archiver):
        return new.stats_reset != old.stats_reset
    if isinstance(new, host.Cpu) and isinstance(old, host.Cpu):
        # btime is computed from two clocks and may move by a second without a boot.
        return abs(new.boot_wall_s - old.boot_wall_s) > 5 and new.user + new.system < old.user + old.system
    if isinstance(new, host.Processes) and isinstance(old, host.Processes):
        return new.postmaster != old.postmaster
    if isinstance(new, postgres.Replication) and isinstance(old, postgres.Replication):
        switched = None not in (new.timeline, old.timeline) and new.timeline != old.timeline
        return new.in_recovery != old.in_recovery or switched
    return False


def delta(new: int | float | None, old: int | float | None, *, wraps: bool = False) -> float | None:
    """How much a counter advanced. None where either is unknown or it went back: a reset, from an unknown moment on.

    `wraps` is for counters the kernel prints as 32 bits (the times of /proc/diskstats, `%u` in block/genhd.c): one that
    falls from the upper half of its range into the lower has wrapped.

    >>> delta(5, 3), delta(1, 3), delta(10, 4294967290, wraps=True), delta(5, None)
    (2, None, 16, None)
    """
    if new is None or old is None:
        return None
    if new >= old:
        return new - old
    if wraps and _WRAP // 2 <= old < _WRAP and new < _WRAP // 2:
        return new + _WRAP - old
    return None


def rate(
    new: int | float | None, old: int | float | None, seconds: float, scale: float = 1.0, *, wraps: bool = False
) -> float | None:
    """Advance of a counter per second, times `scale`; None as in `delta`.

    >>> rate(300, 100, 2.0), rate(8, 4, 1.0, 4096), rate(100, 300, 2.0)
    (100.0, 16384.0, None)
    """
    moved = delta(new, old, wraps=wraps)
    return None if moved is None or seconds <= 0 else moved * scale / seconds


def change(new: int | None, old: int | None, seconds: float) -> float | None:
    """Change of a level per second, which may fall.

    >>> change(100, 300, 2.0)
    -100.0
    """
    return None if new is None or old is None or seconds <= 0 else (new - old) / seconds


def share_pct(part: float | None, whole: float | None) -> float | None:
    """`part` of `whole` from 0 to 100; None where either is unknown or the whole is nothing.

    >>> share_pct(1, 4), share_pct(5, 4), share_pct(0, 0)
    (25.0, 100.0, None)
    """
    if part is None or whole is None or whole <= 0:
        return None
    return min(100.0, max(0.0, 100.0 * part / whole))


def quotient(part: float | None, count: float | None) -> float | None:
    """`part` per `count`, None where nothing was counted: no request is not a fast one."""
    return None if part is None or not count else part / count
