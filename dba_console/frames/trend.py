"""Where a number is going, told from minutes and not from the last two points.

The slope is the median of the slopes between all pairs of points (Theil 1950, Sen 1968), which a burst of a few seconds
cannot move. A single step in the middle of the window could; so the later half must agree. What does not rise clearly
above its own scatter predicts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

Points = Sequence[tuple[int, float]]

WINDOW_S = 300.0
MIN_SPAN_S = 60.0
"""A prediction needs to have been watched for at least this long."""
MIN_POINTS = 8
MAX_POINTS = 31
"""Points the slope is taken from: 465 pairs cost a tenth of a millisecond."""
HORIZON_S = 86_400.0
"""Nothing is predicted further ahead: minutes say little about days."""
_NOISE = 3.0
"""The change over the window must be so many times the median deviation from the line."""


def tail(series: Points, window_s: float) -> Points:
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


def thin(series: Points, most: int = MAX_POINTS) -> Points:
    """At most `most` points, evenly spread, first and last included."""
    if len(series) <= most:
        return series
    last = len(series) - 1
    return [series[round(step * last / (most - 1))] for step in range(most)]


def slope(
    series: Points, *, window_s: float = WINDOW_S, min_span_s: float = MIN_SPAN_S, min_points: int = MIN_POINTS
) -> float | None:
    """Steady change per second. None where too little is known; 0.0 where the halves disagree, as after one step."""
    recent = thin(tail(series, window_s))
    if len(recent) < min_points or (recent[-1][0] - recent[0][0]) / 1e6 < min_span_s:
        return None
    whole = _median_slope(recent)
    half = _median_slope(recent[len(recent) // 2 :])
    if whole * half <= 0:
        return 0.0
    return min(whole, half, key=abs)


def _median_slope(points: Points) -> float:
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for position, earlier in enumerate(points)
        for later in points[position + 1 :]
        if later[0] != earlier[0]
    ]
    return median(slopes) * 1e6 if slopes else 0.0


def time_to_reach(
    series: Points,
    limit: float,
    *,
    gate: float = 0.0,
    window_s: float = WINDOW_S,
    min_span_s: float = MIN_SPAN_S,
    min_points: int = MIN_POINTS,
    horizon_s: float = HORIZON_S,
) -> float | None:
    """Seconds until a rising series reaches `limit`; 0.0 where it is there.

    None where it does not rise, rises by less than `gate` over the window, does not stand out from its own scatter, or
    would need longer than `horizon_s`.
    """
    if not series:
        return None
    now = median([value for _, value in series[-3:]])
    if now >= limit:
        return 0.0
    per_s = slope(series, window_s=window_s, min_span_s=min_span_s, min_points=min_points)
    if per_s is None or per_s <= 0:
        return None
    recent = thin(tail(series, window_s))
    rise = per_s * (recent[-1][0] - recent[0][0]) / 1e6
    if rise < gate or rise < _NOISE * _scatter(recent, per_s):
        return None
    seconds = (limit - now) / per_s
    return seconds if seconds <= horizon_s else None


def _scatter(points: Points, per_s: float) -> float:
    """Median distance of the points from the line of that slope through their middle."""
    offsets = [value - per_s * (at - points[0][0]) / 1e6 for at, value in points]
    middle = median(offsets)
    return median([abs(offset - middle) for offset in offsets])


def mean_rate(series: Points, *, min_span_s: float, window_s: float = float("inf")) -> float | None:
    """Advance per second of a counter over the whole unbroken series; None where it is short or went back."""
    recent = tail(series, window_s)
    if len(recent) < 2:
        return None
    seconds = (recent[-1][0] - recent[0][0]) / 1e6
    moved = recent[-1][1] - recent[0][1]
    if seconds < min_span_s or any(b[1] < a[1] for a, b in pairwise(recent)):
        return None
    return moved / seconds
