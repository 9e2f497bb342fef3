"""Space for WAL: what is free on the disk of pg_wal, how fast WAL is written, and when the disk is full.

Based on the kernel's numbers, so the estimate is unknown if the server runs on another host.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from dba_console.watch.findings.rule import RuleContext
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import recent_points, slope
from dba_console.watch.samples import host


class WalSpaceLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`: space for WAL."""

    family = "wal"

    full_critical_s: Judgement[float] = 3600.0
    """Critical if WAL fills its disk, or a slot is lost, within this time: an operator rarely arrives earlier."""
    full_warn_s: Judgement[float] = 86_400.0
    """Warning if WAL fills its disk, or a slot is lost, within this time; minutes of growth say little about more than
    a day."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.full_critical_s, cls.full_warn_s),)


Points = Sequence[tuple[int, float]]

RATE_WINDOW_S = 300.0
RATE_POINTS = 150
MIN_RATE_POINTS = 3
SEGMENT_BYTES = 16 << 20
"""wal_segment_size if not known: the default of initdb."""


def wal_mount(s: RuleContext) -> host.Mount | None:
    """Return the file system of pg_wal; None if not known."""
    mounts = s.facts.picture.now("host.mounts", host.Mounts)
    rows = [] if mounts is None else mounts.mounts
    return next((row for row in rows if "wal" in row.holds), None)


def segment_bytes(s: RuleContext) -> int:
    """Return the size of one WAL file in bytes."""
    return s.facts.size("wal_segment_size") or SEGMENT_BYTES


def wal_rate(s: RuleContext) -> float | None:
    """Return bytes of WAL written per second, the mean of the last minutes; None before three readings."""
    recent = recent_points(s.history.series("replication.wal_bytes_per_s")[-RATE_POINTS:], RATE_WINDOW_S)
    return fmean(value for _, value in recent) if len(recent) >= MIN_RATE_POINTS else None


def recent_growth(series: Points) -> float | None:
    """Return growth per second over the last ten seconds; None with fewer than four readings. Not a trend."""
    return slope(series, window_s=10.5, min_span_s=5.0, min_points=4)


def seconds_until_full(room: float | None, per_s: float | None) -> float | None:
    """Return the seconds until `room` bytes are used; None if either is unknown or nothing grows."""
    if room is None or per_s is None or per_s <= 0:
        return None
    return max(0.0, room) / per_s
