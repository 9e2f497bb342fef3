"""Evidence of an incident: which charted values, reduced to few points, and their range before and during it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from math import isfinite
from statistics import median

from dba_console.reports.postmortem.facts import ChartSeries, EvidenceChart, SeriesRange
from dba_console.reports.postmortem.timeline import text_of
from dba_console.watch.drawing.findings import series_title, unit_format
from dba_console.watch.drawing.registry import PANELS

Points = list[tuple[int, float]]
BUCKETS = 300
"""Parts of the time axis; each keeps its lowest and its highest value, so a spike of one second stays."""
MAX_CHARTS = 8
MAX_SERIES = 4
_ALWAYS = (
    "connections.used", "connections.active", "locks.waiting", "io.psi_full_pct", "io.iowait_pct",
    "io.read_bytes_per_s", "io.write_bytes_per_s", "memory.cached_bytes", "memory.free_bytes",
    "replication.lag_bytes",
)  # fmt: skip
"""Shown for every incident, if they were recorded, after those that its findings name."""
_GAP_TICKS = 5


def read_series(points: Iterable[tuple[int, Mapping[str, float | None]]], names: Iterable[str]) -> dict[str, Points]:
    """Return the values by name, in the order of their time."""
    wanted = dict.fromkeys((*names, *_ALWAYS))
    found: dict[str, Points] = {name: [] for name in wanted}
    for wall_us, point in points:
        for name in wanted & point.keys():
            value = point[name]
            if value is not None and isfinite(value):
                found[name].append((wall_us, value))
    return {name: sorted(series) for name, series in found.items() if series}


def downsample(series: Sequence[tuple[int, float]], from_us: int, to_us: int, buckets: int = BUCKETS) -> Points:
    """Return at most two points per part of the span: its lowest and its highest, in the order of their time.

    >>> downsample([(0, 1.0), (1, 9.0), (2, 3.0), (3, 2.0)], 0, 3, 1)
    [(0, 1.0), (1, 9.0)]
    """
    if len(series) <= 2 * buckets:
        return list(series)
    width = max(1, to_us - from_us)
    kept: Points = []
    for _, grouped in groupby(series, lambda one: min(buckets - 1, (one[0] - from_us) * buckets // width)):
        bucket = list(grouped)
        low, high = min(bucket, key=lambda one: one[1]), max(bucket, key=lambda one: one[1])
        kept += sorted({low, high})
    return kept


def find_breaks(series: Sequence[tuple[int, float]], tick_us: int) -> list[int]:
    """Return the times before which nothing was read for longer than a few of its usual intervals."""
    steps = [later[0] - earlier[0] for earlier, later in pairwise(series)]
    limit = _GAP_TICKS * max(tick_us, int(median(steps)) if steps else 0)
    return [later[0] for step, later in zip(steps, series[1:], strict=True) if step > limit]


def draw_charts(
    found: Mapping[str, Points],
    from_us: int,
    to_us: int,
    tick_us: int,
    limits: Mapping[str, tuple[str, float]],
    session: int = 0,
) -> list[EvidenceChart]:
    """Return charts of values of one panel and unit. `limits`: name and value of a limit, by name of a series."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, points in found.items():
        if not any(value for _, value in points):
            continue  # nothing but 0 is no evidence
        groups.setdefault((_panel(name), unit_format(name)[0]), []).append(name)
    charts = []
    for (panel, ending), names in list(groups.items())[:MAX_CHARTS]:
        series = tuple(_series(name, found[name], from_us, to_us, tick_us) for name in names[:MAX_SERIES])
        limit_name, limit = next((limits[name] for name in names if name in limits), ("", None))
        chart = EvidenceChart(
            title=_title(panel, ending), ending=ending, series=series, limit=limit, limit_name=limit_name,
            session=session,
        )  # fmt: skip
        charts.append(chart)
    return charts


def _series(name: str, points: Points, from_us: int, to_us: int, tick_us: int) -> ChartSeries:
    return ChartSeries(
        text_of(series_title(name)),
        tuple(downsample(points, from_us, to_us)),
        tuple(find_breaks(points, tick_us)),
    )


def _panel(name: str) -> str:
    """Return the panel of a series: `device:vda.util_pct` and `mount:/pg.used_bytes` are of a kind of their own."""
    kind, colon, _ = name.partition(":")
    return kind if colon else name.partition(".")[0]


def _title(panel: str, ending: str) -> str:
    known = PANELS.get(panel)
    title = (
        known.title
        if known is not None
        else {"device": "Devices", "mount": "File systems", "slot": "Slots"}.get(panel, text_of(panel).capitalize())
    )
    unit = {
        "_bytes_per_s": "bytes per second", "_bytes": "bytes", "_pct": "percent", "avg10": "percent, 10 s average",
        "avg60": "percent, 60 s average", "_per_s": "per second", "_per_min": "per minute", "_ms": "milliseconds",
        "_s": "seconds",
    }.get(ending, "")  # fmt: skip
    return f"{title}, {unit}" if unit else title


def ranges_of(found: Mapping[str, Points], from_us: int, core_us: tuple[int, int]) -> list[SeriesRange]:
    """Return the range of each value during the incident, beside its median before."""
    ranges = []
    for name, points in found.items():
        times = [wall_us for wall_us, _ in points]
        begin, end = bisect_left(times, core_us[0]), bisect_left(times, core_us[1] + 1)
        before = [value for _, value in points[bisect_left(times, from_us) : begin]]
        during = points[begin:end]
        if not during:
            continue
        write = unit_format(name)[1]
        low, high = min(during, key=lambda one: one[1]), max(during, key=lambda one: one[1])
        panel, title = _title(_panel(name), ""), text_of(series_title(name))
        if title == panel.lower():
            title = panel
        elif not title.startswith(panel):
            title = f"{panel}: {title}"
        usual = write(median(before)) if len(before) >= _GAP_TICKS else None
        if low[1] == high[1] and usual in (None, write(low[1])):
            continue  # it did not change
        ranges.append(SeriesRange(title, usual, write(low[1]), low[0], write(high[1]), high[0]))
    return ranges
