"""Charts as coordinates for inline SVG, and as lines of block characters. Only numbers and sanitized texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dba_console.reports.postmortem.facts import ChartSeries, EvidenceChart
from dba_console.watch.drawing.charts import sparkline
from dba_console.watch.drawing.findings import NumberFormat, unit_format
from dba_console.watch.drawing.text_elements import fit

WIDTH, HEIGHT = 560, 170
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 24
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
SYMBOLS = ("●", "▲", "■", "◆")
LETTER_WIDTH = 9.0
SPARK_CELLS = 60
_NAME_CELLS = 20
TABLE_ROWS = 60


class Tick(NamedTuple):
    at: float
    text: str


class SeriesPath(NamedTuple):
    title: str
    path: str
    dash: str
    symbol: str
    end_x: float
    end_y: float
    range: str


class ChartMark(NamedTuple):
    """A vertical line with its letter, empty if it does not fit."""

    x: float
    letter: str
    text: str


class ChartView(NamedTuple):
    title: str
    description: str
    series: list[SeriesPath]
    y_ticks: list[Tick]
    x_ticks: list[Tick]
    limit: Tick | None
    gaps: list[tuple[float, float]]
    """Start and width of spans without samples."""
    marks: list[ChartMark]
    columns: list[str]
    rows: list[list[str]]
    """Time, then the range of each series in that part of the span."""


class TimeAxis(NamedTuple):
    from_us: int
    to_us: int

    def x(self, wall_us: int) -> float:
        width = WIDTH - LEFT - RIGHT
        share = (wall_us - self.from_us) / max(1, self.to_us - self.from_us)
        return round(LEFT + width * min(1.0, max(0.0, share)), 1)

    def ticks(self) -> list[int]:
        """Return about five times at full minutes or seconds."""
        span_us = max(1, self.to_us - self.from_us)
        step_us = next((one for one in _STEPS_US if span_us / one <= 6), _STEPS_US[-1])
        first = -(-self.from_us // step_us) * step_us
        return list(range(first, self.to_us + 1, step_us))[:12]


_STEPS_US = tuple(one * 1_000_000 for one in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
                                              43200, 86400, 604800))  # fmt: skip


def chart_view(
    chart: EvidenceChart,
    axis: TimeAxis,
    time_text: Callable[[int], str],
    gaps: Sequence[tuple[int, int]],
    marks: Sequence[tuple[int, str, str]],
) -> ChartView:
    """Return the chart as coordinates. `marks`: time, letter and text of what happened."""
    write = unit_format(chart.ending)[1]
    values = [value for one in chart.series for _, value in one.points]
    low, high = _scale(values, chart)
    ys = [low + (high - low) * part / 2 for part in range(3)]

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 1)

    series = [
        SeriesPath(
            one.title, "".join(_path(one, axis, y)), DASHES[at], SYMBOLS[at], axis.x(one.points[-1][0]),
            y(one.points[-1][1]), _range_text(one, write),
        )
        for at, one in enumerate(chart.series)
    ]  # fmt: skip
    description = "; ".join(f"{one.title}: {one.range}" for one in series)
    return ChartView(
        title=chart.title,
        description=description,
        series=series,
        y_ticks=[Tick(y(value), write(value)) for value in ys],
        x_ticks=[Tick(axis.x(at), time_text(at)) for at in axis.ticks()],
        limit=None if chart.limit is None else Tick(y(chart.limit), f"{chart.limit_name} {write(chart.limit)}"),
        gaps=[(axis.x(start), round(max(1.0, axis.x(end) - axis.x(start)), 1)) for start, end in gaps],
        marks=list(_chart_marks(axis, marks)),
        columns=[one.title for one in chart.series],
        rows=list(_table_rows(chart, axis, time_text)),
    )


def _chart_marks(axis: TimeAxis, marks: Sequence[tuple[int, str, str]]) -> Iterator[ChartMark]:
    """Yield the marks; one beside another has no letter of its own, because the two could not be read."""
    free = 0.0
    for at_us, letter, text in sorted(marks):
        x = axis.x(at_us)
        shown = letter if x >= free else ""
        free = x + LETTER_WIDTH if shown else free
        yield ChartMark(x, shown, text)


def _scale(values: Sequence[float], chart: EvidenceChart) -> tuple[float, float]:
    """Return the lowest and highest value of the axis. It starts at 0 unless the values change little above it."""
    high = max([*values, chart.limit or 0.0])
    low = min(values)
    if low >= 0 and not (chart.ending == "_bytes" and low > (high - low)):
        low = 0.0
    return low, high if high > low else low + 1.0


def _path(series: ChartSeries, axis: TimeAxis, y: Callable[[float], float]) -> Iterator[str]:
    breaks = {*series.breaks_us}
    for number, (wall_us, value) in enumerate(series.points):
        yield f"{'M' if number == 0 or wall_us in breaks else 'L'}{axis.x(wall_us):g} {y(value):g}"
    if len(series.points) == 1:
        yield "h1"


def _range_text(series: ChartSeries, write: NumberFormat) -> str:
    values = [value for _, value in series.points]
    return f"{write(min(values))} to {write(max(values))}"


def _table_rows(chart: EvidenceChart, axis: TimeAxis, time_text: Callable[[int], str]) -> Iterator[list[str]]:
    write = unit_format(chart.ending)[1]
    span_us = max(1, axis.to_us - axis.from_us)
    parts: dict[int, list[list[float]]] = {}
    for at, one in enumerate(chart.series):
        for wall_us, value in one.points:
            part = min(TABLE_ROWS - 1, max(0, (wall_us - axis.from_us) * TABLE_ROWS // span_us))
            parts.setdefault(part, [[] for _ in chart.series])[at].append(value)
    for part in sorted(parts):
        cells = [_cell(values, write) for values in parts[part]]
        yield [time_text(axis.from_us + part * span_us // TABLE_ROWS), *cells]


def _cell(values: Sequence[float], write: NumberFormat) -> str:
    if not values:
        return "–"
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} … {high}"


def spark_lines(chart: EvidenceChart, axis: TimeAxis) -> list[str]:
    """Return each series as a line of block characters, blank where nothing was read, with its range."""
    write = unit_format(chart.ending)[1]
    names = [fit(one.title, _NAME_CELLS) for one in chart.series]
    return [
        f"{name} {_spark(one, axis)} {_range_text(one, write)}" for name, one in zip(names, chart.series, strict=True)
    ]


def _spark(series: ChartSeries, axis: TimeAxis) -> str:
    values = [value for _, value in series.points]
    low, high = min(0.0, *values), max(values)
    cells = min(SPARK_CELLS, max(10, len(values) // 2))
    window_s = (axis.to_us - axis.from_us) / 1e6
    return sparkline(series.points, axis.to_us, window_s, cells, low, high if high > low else low + 1.0)
