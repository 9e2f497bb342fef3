"""Room for WAL: what is free on the disk of pg_wal, how fast WAL is written, and when it is full.

The kernel's numbers, so only where the server runs on this host; without them there is no date, and none is invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from dba_console.findings.rule_context import RuleContext
from dba_console.frames.trend import recent_points, slope
from dba_console.samples import host

Points = Sequence[tuple[int, float]]

RATE_WINDOW_S = 300.0
RATE_POINTS = 150
MIN_RATE_POINTS = 3
SEGMENT_BYTES = 16 << 20
"""wal_segment_size where it is not known: the default of initdb."""


def wal_mount(s: RuleContext) -> host.Mount | None:
    """The file system pg_wal lies on, None where it is not known."""
    mounts = s.facts.picture.now("host.mounts", host.Mounts)
    rows = [] if mounts is None else mounts.mounts
    return next((row for row in rows if "wal" in row.holds), None)


def segment_bytes(s: RuleContext) -> int:
    """Size of one file of WAL."""
    return s.facts.size("wal_segment_size") or SEGMENT_BYTES


def wal_rate(s: RuleContext) -> float | None:
    """Bytes of WAL written a second, the mean of the last minutes; None before it was seen three times."""
    recent = recent_points(s.history.series("replication.wal_bytes_per_s")[-RATE_POINTS:], RATE_WINDOW_S)
    return fmean(value for _, value in recent) if len(recent) >= MIN_RATE_POINTS else None


def recent_growth(series: Points) -> float | None:
    """Growth a second over the last ten seconds, None below four readings that agree: a beginning, not a trend."""
    return slope(series, window_s=10.5, min_span_s=5.0, min_points=4)


def round_number(number: float | None) -> float | None:
    """A number for the evidence, with one digit: more are noise, and would make each tick another."""
    return None if number is None else round(number, 1)


def seconds_until_full(room: float | None, per_s: float | None) -> float | None:
    """Seconds until `room` bytes are used; None where either is unknown or nothing grows."""
    if room is None or per_s is None or per_s <= 0:
        return None
    return max(0.0, room) / per_s
