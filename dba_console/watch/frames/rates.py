"""Rates and trends from counters; None where two readings cannot be compared.

Two readings are subtracted only if nothing in between invalidates the difference. The first tick, a gap, a restart of
the server, a statistics reset or another run of the agent give None, never 0, and never an average over the missed
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Generic, NamedTuple, TypeVar

from dba_console.watch.frames.panel_status import stale_after_s
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples import postgres
from dba_console.watch.samples.sample import PARTS

T = TypeVar("T")

GAP_TICKS = 3
"""Readings further apart than this many of their intervals have a gap between them."""
LONGEST_TICK_S = 60.0
"""The longest agent tick; two samples further apart are not consecutive."""
USER_HZ = 100
"""Ticks of /proc/stat and /proc/PID/stat per second: 100 on every Linux architecture PostgreSQL runs on (time(7))."""
_WRAP = 1 << 32


class Pair(NamedTuple, Generic[T]):
    """Two comparable readings, and the seconds between them."""

    new: T
    old: T
    seconds: float


def pair(picture: Picture, name: str, kind: type[T]) -> Pair[T] | None:
    """Return the last two readings of a part if their difference is meaningful now, else None.

    The last reading before the connection was lost says nothing about the rate since; a level is shown with its age.
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
    """Return the maximum distance between two readings of the part, seconds, before it counts as a gap."""
    kind = PARTS.get(name)
    every_s = 1.0 if kind is None else float(kind.every_s)
    tick_s = min(picture.tick_us / 1e6, LONGEST_TICK_S)
    return GAP_TICKS * max(every_s, tick_s)


def _server_started_between(picture: Picture, name: str) -> bool:
    """Check whether the server's start is between the last two readings, on the agent's monotonic clock."""
    server = picture.current.get("pg.server")
    reading = None if server is None else server.value()
    if server is None or not isinstance(reading, postgres.Server):
        return False
    started_us = server.part.at_us - (reading.now_us - reading.start_us)
    return picture.previous[name].part.at_us < started_us <= picture.current[name].part.at_us


def _reset_between(new: object, old: object) -> bool:
    """Check whether the counters were reset: statistics reset, host reboot, another postmaster, a promotion."""
    if (is_reset := getattr(new, "is_reset", None)) is not None:
        return bool(is_reset(old))
    return False


def delta(new: int | float | None, old: int | float | None, *, wraps: bool = False) -> float | None:
    """Return the advance of a counter. None if either is unknown or it went back: a reset at an unknown time.

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
    """Return the advance of a counter per second, times `scale`; None as in `delta`.

    >>> rate(300, 100, 2.0), rate(8, 4, 1.0, 4096), rate(100, 300, 2.0)
    (100.0, 16384.0, None)
    """
    moved = delta(new, old, wraps=wraps)
    return None if moved is None or seconds <= 0 else moved * scale / seconds


def change(new: int | None, old: int | None, seconds: float) -> float | None:
    """Return the change of a level per second, which may be negative.

    >>> change(100, 300, 2.0)
    -100.0
    """
    return None if new is None or old is None or seconds <= 0 else (new - old) / seconds


def share_pct(part: float | None, whole: float | None) -> float | None:
    """Return `part` of `whole` in percent, 0 to 100; None if either is unknown or the whole is 0.

    >>> share_pct(1, 4), share_pct(5, 4), share_pct(0, 0)
    (25.0, 100.0, None)
    """
    if part is None or whole is None or whole <= 0:
        return None
    return min(100.0, max(0.0, 100.0 * part / whole))


def quotient(part: float | None, count: float | None) -> float | None:
    """Return `part` per `count`, None if the count is 0: no requests does not mean fast ones."""
    return None if part is None or not count else part / count


# Trends over minutes, not over the last two points. The slope is the median of the slopes between all pairs of points
# (Theil 1950, Sen 1968), which a burst of a few seconds cannot move. A single step in the middle of the window could;
# so the slope of the later half is used, and only if the whole and the last third agree. A rise that is not clearly
# above its own scatter predicts nothing.

Points = Sequence[tuple[int, float]]

WINDOW_S = 300.0
MIN_SPAN_S = 60.0
"""Minimum span of readings for a prediction, seconds."""
MIN_POINTS = 8
MAX_POINTS = 25
"""Points used for the slope: 300 pairs cost less than a tenth of a millisecond."""
HORIZON_S = 86_400.0
"""Nothing is predicted further ahead: minutes say little about days."""
_NOISE = 3.0
"""The change over the window must be this many times the median deviation from the line."""


def recent_points(series: Points, window_s: float) -> Points:
    """Return the continuous end of the series: its last `window_s` seconds, from the last gap on.

    A gap is longer than five typical distances and ten seconds: conditions before it may have been different.
    """
    if len(series) < 2:
        return series
    last_us = series[-1][0]
    recent = [point for point in series if last_us - point[0] <= window_s * 1e6]
    steps = [later[0] - earlier[0] for earlier, later in pairwise(recent)]
    if not steps:
        return recent
    limit = max(10_000_000, 5 * sorted(steps)[len(steps) // 2])
    for position in range(len(steps) - 1, -1, -1):
        if steps[position] > limit or steps[position] <= 0:
            return recent[position + 1 :]
    return recent


def sample_points(series: Points, most: int = MAX_POINTS) -> Points:
    """Return at most `most` points, evenly spread, first and last included."""
    if len(series) <= most:
        return series
    last = len(series) - 1
    return [series[round(step * last / (most - 1))] for step in range(most)]


class SeriesTrend(NamedTuple):
    """The trend of a series over the window."""

    per_s: float
    """Steady change of the later half; 0.0 if the whole or the last third does not agree, as after one step."""
    now: float
    """The median of the last three values."""
    points: Points

    def time_to_reach(self, limit: float, *, gate: float = 0.0, horizon_s: float = HORIZON_S) -> float | None:
        """Return the seconds until it rises to `limit`; 0.0 if it is reached.

        None if it does not rise, rises by less than `gate` over the window, is not above its own scatter, or needs
        longer than `horizon_s`.
        """
        if self.now >= limit:
            return 0.0
        if self.per_s <= 0:
            return None
        rise = self.per_s * (self.points[-1][0] - self.points[0][0]) / 1e6
        if rise < gate or rise < _NOISE * _scatter(self.points, self.per_s):
            return None
        seconds = (limit - self.now) / self.per_s
        return seconds if seconds <= horizon_s else None


def fit_trend(
    series: Points, *, window_s: float = WINDOW_S, min_span_s: float = MIN_SPAN_S, min_points: int = MIN_POINTS
) -> SeriesTrend | None:
    """Return the trend of the series; None without enough readings."""
    recent = recent_points(series, window_s)
    if len(recent) < min_points or (recent[-1][0] - recent[0][0]) / 1e6 < min_span_s:
        return None
    now = median([value for _, value in recent[-3:]])
    recent = sample_points(recent)
    return SeriesTrend(_agreed_slope(recent), now, recent)


def _agreed_slope(points: Points) -> float:
    """Return the slope of the later half if the whole and the last third have the same sign; else 0.0.

    A single step lies in the middle of at most two of the three, and only in the middle does it move a median.
    """
    half = _median_slope(points[len(points) // 2 :])
    for others in (points, points[-max(3, len(points) // 3) :]):
        if half * _median_slope(others) <= 0:
            return 0.0
    return half


def slope(
    series: Points, *, window_s: float = WINDOW_S, min_span_s: float = MIN_SPAN_S, min_points: int = MIN_POINTS
) -> float | None:
    """Return the steady change per second; None as in `fit_trend`."""
    found = fit_trend(series, window_s=window_s, min_span_s=min_span_s, min_points=min_points)
    return None if found is None else found.per_s


def time_to_reach(series: Points, limit: float, *, gate: float = 0.0) -> float | None:
    """Return the seconds until the series rises to `limit`, as `SeriesTrend.time_to_reach`."""
    found = fit_trend(series)
    return None if found is None else found.time_to_reach(limit, gate=gate)


def _median_slope(points: Points) -> float:
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for position, earlier in enumerate(points)
        for later in points[position + 1 :]
    ]
    return median(slopes) * 1e6


def _scatter(points: Points, per_s: float) -> float:
    """Return the median distance of the points from the line of that slope through their median."""
    offsets = [value - per_s * (at - points[0][0]) / 1e6 for at, value in points]
    middle = median(offsets)
    return median([abs(offset - middle) for offset in offsets])


def mean_rate(series: Points, *, min_span_s: float) -> float | None:
    """Return the advance of a counter per second over the whole continuous series; None if it is short or went back."""
    recent = recent_points(series, float("inf"))
    if len(recent) < 2:
        return None
    seconds = (recent[-1][0] - recent[0][0]) / 1e6
    if seconds < min_span_s or any(b[1] < a[1] for a, b in pairwise(recent)):
        return None
    return (recent[-1][1] - recent[0][1]) / seconds
