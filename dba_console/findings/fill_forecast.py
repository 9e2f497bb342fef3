"""When a file system will be full: told from ten seconds, from minutes and from hours of readings.

A disk that is filled by something that will end in a moment must not cry, and one that is full in three minutes must
not wait for a steady trend. So a date is believed no further ahead than a multiple of what has been watched; what was
watched for ten seconds only counts when the end is near.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple

from dba_console.frames.disks import GATE_BYTES, GATE_SHARE
from dba_console.frames.trend import Points, fit_trend, sample_points

GAP_US = 20_000_000
"""Readings come every 5 s; further apart, what was between them is not known."""
COARSE_US = 120_000_000
MIN_SPAN_S = 29.0
MIN_POINTS = 7
"""Half a minute is the least a trend is told from: with `MAX_HORIZON_FACTOR` three minutes ahead, for a disk nearly
gone."""
MAX_HORIZON_FACTOR = 6.0
"""A date is told no further ahead than so many times the span that it is told from: an hour of ordinary work goes up
and down by gigabytes, and a few minutes of it say nothing of the day."""
SPAN_PARTS = 10
RISING_SHARE = 0.7
"""The span is cut into so many parts; so large a share of them must have risen, for a bulk load is one step or two."""
URGENT_FACTOR = 5.0
"""It is called near no further ahead than this: a sixth of what was free has been used up while it was watched."""
BURST_GATE_SHARE = 0.05
"""Ten seconds of growth count when they used so much of what was left: less is a checkpoint, or a large file copied."""
_MARGIN = 4.0


class FillForecast(NamedTuple):
    """Where the used bytes of a file system go."""

    per_s: float
    """Growth, bytes per second."""
    full_in_s: float
    watched_s: float
    steady: bool
    """False: told from ten seconds only."""

    @property
    def urgent(self) -> bool:
        """Whether it is near, measured by what was watched."""
        return self.steady and self.full_in_s <= URGENT_FACTOR * self.watched_s


class UsageHistory:
    """The used bytes of one file system: each reading of five minutes, one every two minutes of four hours."""

    def __init__(self) -> None:
        self.latches: dict[str, bool] = {}
        """Shares of it that are told, each until it is clearly below (`lasting.latched`)."""
        self._fine: deque[tuple[int, float]] = deque(maxlen=61)
        self._coarse: deque[tuple[int, float]] = deque(maxlen=121)

    def add(self, mono_us: int, used: int) -> None:
        """Take in a reading. A gap begins anew what is told from minutes; growth over hours outlives a short one."""
        step_us = mono_us - self._fine[-1][0] if self._fine else 0
        if step_us < 0:
            self._coarse.clear()  # the host was booted anew
        if not 0 <= step_us <= GAP_US:
            self._fine.clear()
        if not self._coarse or mono_us - self._coarse[-1][0] >= COARSE_US:
            self._coarse.append((mono_us, float(used)))
        self._fine.append((mono_us, float(used)))

    def forecast(self, limit: int, size: int, *, within_s: float, soon_s: float) -> FillForecast | None:
        """The nearest end that can be believed: within `within_s` by a steady trend, else `soon_s` by ten seconds."""
        gate = max(GATE_BYTES, GATE_SHARE * size)
        trends = [self._steady_forecast(points, limit, gate, within_s) for points in (self._fine, self._coarse)]
        steady = min((one for one in trends if one is not None), key=lambda one: one.full_in_s, default=None)
        return steady or self._burst_forecast(limit, soon_s)

    @staticmethod
    def _steady_forecast(
        points: deque[tuple[int, float]], limit: int, gate: float, within_s: float
    ) -> FillForecast | None:
        if len(points) < 2:
            return None
        span_s, rise = (points[-1][0] - points[0][0]) / 1e6, points[-1][1] - points[0][1]
        # The trend is dear; first whether the two ends leave any room for one that ends so soon.
        if rise < gate / _MARGIN or (limit - points[-1][1]) * span_s > _MARGIN * rise * within_s:
            return None
        if not _keeps_rising(list(points)):
            return None
        found = fit_trend(list(points), window_s=14_400.0, min_span_s=MIN_SPAN_S, min_points=MIN_POINTS)
        full_in_s = None if found is None else found.time_to_reach(limit, gate=gate, horizon_s=within_s)
        if found is None or full_in_s is None or full_in_s > MAX_HORIZON_FACTOR * span_s:
            return None
        return FillForecast(found.per_s, full_in_s, span_s, True)

    def _burst_forecast(self, limit: int, soon_s: float) -> FillForecast | None:
        """Three readings, each above the one before: the pace is that of the last two."""
        if len(self._fine) < 3:
            return None
        (first_us, first), (middle_us, middle), (last_us, last) = list(self._fine)[-3:]
        left = limit - last
        if not first < middle < last or last - first < max(GATE_BYTES, BURST_GATE_SHARE * left):
            return None
        per_s = (last - middle) / (last_us - middle_us) * 1e6
        full_in_s = left / per_s
        # The earlier step may have caught the beginning only, but it must be of the same growth.
        grew = (middle - first) / (middle_us - first_us) * 1e6
        if full_in_s > soon_s or grew < 0.005 * per_s:
            return None
        return FillForecast(per_s, max(0.0, full_in_s), (last_us - first_us) / 1e6, False)


def _keeps_rising(points: Points) -> bool:
    """Whether most parts of the span rose, each by itself."""
    levels = [value for _, value in sample_points(points, SPAN_PARTS + 1)]
    rose = sum(later > earlier for earlier, later in pairwise(levels))
    return rose >= RISING_SHARE * (len(levels) - 1)
