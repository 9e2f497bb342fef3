"""Charts of block elements: several charts, one time axis.

A column covers an interval of time. A column without a reading is blank, because unknown is not 0; a reading at the
bottom of the chart still shows the lowest block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from dba_console.watch.drawing.text_elements import Line, Span, Style, fit
from dba_console.watch.drawing.time_formats import hour_and_minute
from dba_console.watch.frames.chart_history import ChartHistory

_BLOCKS = " ▁▂▃▄▅▆▇█"
_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 21600)
Point = tuple[int, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """The time range of a chart, from `start_us` to `end_us` inclusive, in `cells` columns."""

    start_us: int
    end_us: int
    cells: int
    now_us: int | None = None
    """When it is drawn, if that is not its end."""

    @classmethod
    def last(cls, now_us: int, window_s: float, cells: int) -> Axis:
        """Return an axis of about the last `window_s` seconds, whose columns begin at the same times in each tick.

        So only the last column changes with a new reading, and the others move when a column is complete: a chart that
        moves a little each second is drawn again each second.
        """
        column_us = int(window_s * 1e6) // max(1, cells)
        end_us = (now_us // column_us + 1) * column_us
        return cls(end_us - column_us * cells, end_us, cells, now_us)

    def column(self, wall_us: int) -> int | None:
        """Return the column of a time, None outside the axis."""
        if not self.start_us < wall_us <= self.end_us or self.cells < 1:
            return None
        return min(self.cells - 1, (wall_us - self.start_us) * self.cells // (self.end_us - self.start_us))


def peaks(points: Sequence[Point], axis: Axis) -> list[float | None]:
    """Return the maximum of each column: a spike of one second stays visible on an axis of ten minutes.

    The points must be in time order.
    """
    values = [value for _, value in points]
    return [_finite(max(values[begin:end])) if begin < end else None for begin, end in _column_slices(points, axis)]


def latest(points: Sequence[Point], axis: Axis) -> list[float | None]:
    """Return the last value of each column: for levels, which have no spikes."""
    return [_finite(points[end - 1][1]) if begin < end else None for begin, end in _column_slices(points, axis)]


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _column_slices(points: Sequence[Point], axis: Axis) -> Iterator[tuple[int, int]]:
    """Yield start and end index of the points in each column."""
    times = [wall_us for wall_us, _ in points]
    span, cells = axis.end_us - axis.start_us, axis.cells
    begin = bisect_right(times, axis.start_us)
    for column in range(1, cells + 1):
        # The start of the next column, rounded up because Axis.column rounds down.
        next_us = axis.start_us + -(-column * span // cells)
        end = bisect_right(times, axis.end_us, begin) if column == cells else bisect_left(times, next_us, begin)
        yield begin, end
        begin = end


def plot(values: Sequence[float | None], low: float, high: float, rows: int) -> list[str]:
    """Return the values as `rows` lines of blocks, the top line first.

    The top eighth stays empty, so that stacked charts do not touch.

    >>> plot([0, 5, None, 10], 0, 10, 1)
    ['▁▄ ▇']
    """
    steps = rows * 8 - 1
    scale = steps / (high - low) if high > low else 0.0
    heights = [0 if value is None else min(steps, max(1, round((value - low) * scale))) for value in values]
    # The bottom row's block for each column height; each higher row subtracts eight steps more.
    signs = " " * (rows * 8) + _BLOCKS + "█" * (rows * 8)
    return ["".join([signs[height + base] for height in heights]) for base in range(8, rows * 8 + 8, 8)]


def sparkline(points: Sequence[Point], end_us: int, window_s: float, cells: int, low: float, high: float) -> str:
    """Return the last `window_s` seconds in one line of `cells` blocks, blank where unknown."""
    if cells < 1:
        return ""
    axis = Axis.last(end_us, window_s, cells)
    return plot(peaks(points, axis), low, high, 1)[0]


def stall_points(history: ChartHistory) -> tuple[list[tuple[int, float]], str]:
    """Return the best measure of stalls: time in which all were stalled, else the kernel's average, else iowait."""
    for name, label in (("io.psi_full_pct", "full"), ("io.psi_full_avg10", "full"), ("io.iowait_pct", "iowait")):
        if points := history.series(name):
            return points, label
    return [], "iowait"


def clock_line(axis: Axis) -> str:
    """Return local times under their columns: `╵14:48     ╵14:50`, each mark at its full minute."""
    if axis.cells < 8 or axis.end_us <= axis.start_us:
        return " " * axis.cells
    wanted = (axis.end_us - axis.start_us) / 1e6 / max(1, axis.cells // 9)
    step_us = next((step for step in _STEPS_S if step >= wanted), _STEPS_S[-1]) * 1_000_000
    signs = [" "] * axis.cells
    moment = (axis.start_us // step_us + 1) * step_us
    while moment <= axis.end_us:
        column = axis.column(moment)
        label = "╵" + hour_and_minute(moment)
        if column is not None and column + len(label) <= axis.cells and signs[column] == " ":
            signs[column : column + len(label)] = label
        moment += step_us
    return "".join(signs)


def symbol_line(marks: Iterable[tuple[int, str]], axis: Axis) -> str:
    """Return symbols at the columns of their times. Where several meet the last one shows; `!` is hidden only by `‼`,
    which nothing hides.
    """
    signs = [" "] * max(0, axis.cells)
    for wall_us, sign in marks:
        column = axis.column(wall_us)
        if column is not None and (signs[column] not in "!‼" or (signs[column], sign) == ("!", "‼")):
            signs[column] = sign
    return "".join(signs)


# One chart on a time axis: rows of blocks, with name, latest number and range beside them.

_CURRENT_S = 10.0
"""A last reading older than this is not current."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: title, points, minimum top (0 for none) and number format."""

    title: str
    points: Sequence[Point]
    format_number: Callable[[float | None], str]
    starts_at_zero: bool = True
    """The chart starts at 0; else at its own lowest value, which is labelled."""
    min_top: float = 0
    min_span: float = 0
    """Minimum distance from bottom to top, so that noise is not enlarged."""
    shown_value: tuple[str, float | None] | None = None
    """Shown beside the chart in place of `now` and its last point: the figure of its panel."""


def draw_chart(chart: Chart, axis: Axis, gutter: int, rows: int) -> list[Line]:
    """Return the chart in `rows` lines: `gutter` cells of labels, then the cells of the axis."""
    column_values = peaks if chart.starts_at_zero else latest
    values = column_values(chart.points, axis)
    known = [value for value in values if value is not None]
    low, high = _range(chart, known)
    labels = _labels(chart, known, _shown_value(chart, axis.now_us or axis.end_us), low, high, gutter, rows)
    if not known:
        blank = fit("  no readings yet", axis.cells)
        return [
            (Span(label, "dim"), Span(blank if row == rows - 1 else "", "stale")) for row, label in enumerate(labels)
        ]
    style: Style = "bar"
    drawn = plot(values, low, high, rows)
    return [(Span(label, "dim"), Span(text, style)) for label, text in zip(labels, drawn, strict=True)]


def _shown_value(chart: Chart, now_us: int) -> tuple[str, float | None]:
    """Return the label and the number beside the chart: the last reading, not the peak of the last column."""
    if chart.shown_value is not None:
        return chart.shown_value
    wall_us, value = chart.points[-1] if chart.points else (0, 0.0)
    return "now", value if now_us - wall_us <= _CURRENT_S * 1e6 and isfinite(value) else None


def _range(chart: Chart, known: Sequence[float]) -> tuple[float, float]:
    """Return bottom and top of the chart: of the readings, but at least the chart's minimum range."""
    if not known:
        return 0.0, chart.min_top
    if chart.starts_at_zero:
        return 0.0, max(chart.min_top, *known)
    low, high = min(known), max(known)
    missing = max(0.0, chart.min_span - (high - low)) / 2
    low = max(0.0, low - missing)
    return low, max(high + missing, low + chart.min_span)


def _labels(
    chart: Chart,
    known: Sequence[float],
    shown_value: tuple[str, float | None],
    low: float,
    high: float,
    gutter: int,
    rows: int,
) -> list[str]:
    top, bottom = (chart.format_number(high), chart.format_number(low)) if known else ("", "")
    word, value = shown_value[0], chart.format_number(shown_value[1])
    if rows == 1:
        return [_label(f"{chart.title} {value}", top, gutter, "┤")]
    if rows == 2:
        return [_label(chart.title, top, gutter, "┤"), _label(f" {word} {value}", bottom, gutter, "┤")]
    middle = [_label(f" {word} {value}", "", gutter, "│"), *[_label("", "", gutter, "│")] * (rows - 3)]
    return [_label(chart.title, top, gutter, "┤"), *middle, _label("", bottom, gutter, "┤")]


def _label(left: str, right: str, gutter: int, tick: str) -> str:
    """Return `left`, then `right` at the end if it fits, then the tick."""
    space = gutter - 2 - len(left)
    if len(right) + 1 > space:
        right = ""
    return fit(left + " " * max(0, space - len(right)) + right, gutter - 2) + " " + tick
