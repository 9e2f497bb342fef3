"""Where a number is going, told from minutes and not from the last two points.

The slope is the median of the slopes between all pairs of points (Theil 1950, Sen 1968), which a burst of a few seconds
cannot move. A single step in the middle of the window could; so the slope told is that of the later half, and only
where the whole and the last third agree. What does not rise clearly above its own scatter predicts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

Points = Sequence[tuple[int, float]]

WINDOW_S = 300.0
MIN_SPAN_S = 60.0
"""A prediction needs to have been watched for at least this long."""
MIN_POINTS = 8
MAX_POINTS = 25
"""Points the slope is taken from: 300 pairs cost less than a tenth of a millisecond."""
HORIZON_S = 86_400.0
"""Nothing is predicted further ahead: minutes say little about days."""
_NOISE = 3.0
"""The change over the window must be so many times the median deviation from the line."""


def recent_points(series: Points, window_s: float) -> Points:
    """The unbroken end of the series: its last `window_s` seconds, from the last gap on.

    A gap is a hole of more than five usual distances (and ten seconds): on the other side of it things were different.
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
    """At most `most` points, evenly spread, first and last included."""
    if len(series) <= most:
        return series
    last = len(series) - 1
    return [series[round(step * last / (most - 1))] for step in range(most)]


class SeriesTrend(NamedTuple):
    """Where a series goes, from the points of the window."""

    per_s: float
    """Steady change of the later half; 0.0 where the whole or the last third does not agree, as after one step."""
    now: float
    """The middle of the last three values."""
    points: Points

    def time_to_reach(self, limit: float, *, gate: float = 0.0, horizon_s: float = HORIZON_S) -> float | None:
        """Seconds until it rises to `limit`; 0.0 where it is there.

        None where it does not rise, rises by less than `gate` over the window, does not stand out from its own
        scatter, or would need longer than `horizon_s`.
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
    """Where the series goes; None where it was not watched for long enough to tell."""
    recent = recent_points(series, window_s)
    if len(recent) < min_points or (recent[-1][0] - recent[0][0]) / 1e6 < min_span_s:
        return None
    now = median([value for _, value in recent[-3:]])
    recent = sample_points(recent)
    return SeriesTrend(_agreed_slope(recent), now, recent)


def _agreed_slope(points: Points) -> float:
    """Slope of the later half, where the whole and the last third go the same way; else 0.0.

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
    """Steady change per second; None as in `fit_trend`."""
    found = fit_trend(series, window_s=window_s, min_span_s=min_span_s, min_points=min_points)
    return None if found is None else found.per_s


def time_to_reach(series: Points, limit: float, *, gate: float = 0.0) -> float | None:
    """Seconds until the series rises to `limit`, as `Course.time_to_reach`."""
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
    """Median distance of the points from the line of that slope through their middle."""
    offsets = [value - per_s * (at - points[0][0]) / 1e6 for at, value in points]
    middle = median(offsets)
    return median([abs(offset - middle) for offset in offsets])


def mean_rate(series: Points, *, min_span_s: float, window_s: float = float("inf")) -> float | None:
    """Advance per second of a counter over the whole unbroken series; None where it is short or went back."""
    recent = recent_points(series, window_s)
    if len(recent) < 2:
        return None
    seconds = (recent[-1][0] - recent[0][0]) / 1e6
    moved = recent[-1][1] - recent[0][1]
    if seconds < min_span_s or any(b[1] < a[1] for a, b in pairwise(recent)):
        return None
    return moved / seconds
