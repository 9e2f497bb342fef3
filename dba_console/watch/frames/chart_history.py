"""Chart history: the last minutes of every charted number, for trends and charts.

Stored as plain arrays, because every console keeps it for its lifetime: ten minutes of sixty series at 1 Hz are about
half a megabyte. Limited by time; a series without new points is removed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

DEFAULT_SPAN_S = 600.0


class _ChartSeries:
    """Times and values of one name, oldest first."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times = array("q")
        self.values = array("d")

    def drop_before(self, wall_us: int) -> None:
        # Trimmed in blocks: removing one point per tick would move the whole array every second.
        count = bisect_left(self.times, wall_us)
        if count >= 32 or count == len(self.times):
            del self.times[:count]
            del self.values[:count]

    def drop_from(self, wall_us: int) -> None:
        position = bisect_left(self.times, wall_us)
        del self.times[position:]
        del self.values[position:]


class ChartHistory:
    """Points of the last `span_s` seconds by name, in the order of their wall time.

    A point at or before the newest one replaces everything from its time on: a clock set back leaves no future times,
    and a tick added twice counts once.
    """

    def __init__(self, span_s: float = DEFAULT_SPAN_S) -> None:
        self.span_us = int(span_s * 1e6)
        self.last_us: int | None = None
        """Wall time of the newest point, None before the first."""
        self._series: dict[str, _ChartSeries] = {}

    def add(self, wall_us: int, point: Mapping[str, float]) -> None:
        """Add the values of one tick. A missing name has no point then, which is not a 0."""
        if self.last_us is not None and wall_us <= self.last_us:
            for series in self._series.values():
                series.drop_from(wall_us)
        self.last_us = wall_us
        for name, value in point.items():
            known = self._series.get(name)
            if known is None:
                known = self._series[name] = _ChartSeries()
            known.times.append(wall_us)
            known.values.append(value)
        self._trim(wall_us)

    def extend(self, points: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Add many ticks, oldest first, as a recording gives them."""
        for wall_us, point in points:
            self.add(wall_us, point)

    def clear(self) -> None:
        """Remove all points: what follows is of another server or another time."""
        self._series.clear()
        self.last_us = None

    def names(self) -> list[str]:
        """Return the names with at least one point in the span."""
        return list(self._series)

    def series(self, name: str) -> list[tuple[int, float]]:
        """Return (wall microseconds, value) of `name`, oldest first; empty if unknown."""
        known = self._series.get(name)
        if known is None or self.last_us is None:
            return []
        first = bisect_left(known.times, self.last_us - self.span_us)
        return list(zip(known.times[first:], known.values[first:], strict=True))

    def points_after(self, wall_us: int) -> list[tuple[int, dict[str, float]]]:
        """Return the ticks after that time, oldest first, as `extend` takes them."""
        found: dict[int, dict[str, float]] = {}
        for name, series in self._series.items():
            first = bisect_right(series.times, wall_us)
            for at_us, value in zip(series.times[first:], series.values[first:], strict=True):
                found.setdefault(at_us, {})[name] = value
        return [(at_us, found[at_us]) for at_us in sorted(found)]

    def until(self, wall_us: int) -> ChartHistory:
        """Return a copy as of that time, which a paused screen keeps while this one continues."""
        copy = ChartHistory(self.span_us / 1e6)
        for name, series in self._series.items():
            position = bisect_right(series.times, wall_us)
            if position:
                kept = copy._series[name] = _ChartSeries()
                kept.times, kept.values = series.times[:position], series.values[:position]
                copy.last_us = max(copy.last_us or kept.times[-1], kept.times[-1])
        return copy

    def _trim(self, wall_us: int) -> None:
        oldest = wall_us - self.span_us
        empty = []
        for name, series in self._series.items():
            if not series.times or series.times[0] < oldest:
                series.drop_before(oldest)
                if not series.times:
                    empty.append(name)
        for name in empty:
            del self._series[name]
