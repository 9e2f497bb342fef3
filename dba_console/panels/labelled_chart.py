"""One chart over a time axis: its rows of blocks, and beside them its name, its newest number and its range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from dba_console.panels import charts
from dba_console.panels.cell_width import fit
from dba_console.panels.text_elements import Line, Span, Style

_CURRENT_S = 10.0
"""A last reading older than this is not how things are now."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: what it shows, its points, the top it always has (0 for none) and how its numbers are written."""

    title: str
    points: Sequence[charts.Point]
    format_number: Callable[[float | None], str]
    starts_at_zero: bool = True
    """The chart stands on 0; else on its own lowest value, labelled."""
    min_top: float = 0
    min_span: float = 0
    """At least this much from bottom to top, so that noise does not look like an avalanche."""
    shown_value: tuple[str, float | None] | None = None
    """What stands beside the chart in place of `now` and its last point: the figure its panel tells."""


def draw_chart(chart: Chart, axis: charts.Axis, gutter: int, rows: int) -> list[Line]:
    """The chart in `rows` lines: `gutter` cells of labels, then the cells of the axis."""
    column_values = charts.peaks if chart.starts_at_zero else charts.latest
    values = column_values(chart.points, axis)
    known = [value for value in values if value is not None]
    low, high = _range(chart, known)
    labels = _labels(chart, known, _shown_value(chart, axis.end_us), low, high, gutter, rows)
    if not known:
        blank = fit("  nothing known yet", axis.cells)
        return [
            (Span(label, "dim"), Span(blank if row == rows - 1 else "", "stale")) for row, label in enumerate(labels)
        ]
    style: Style = "bar"
    drawn = charts.plot(values, low, high, rows)
    return [(Span(label, "dim"), Span(text, style)) for label, text in zip(labels, drawn, strict=True)]


def _shown_value(chart: Chart, now_us: int) -> tuple[str, float | None]:
    """The word and the number beside the chart: the last reading, not the peak of the last column."""
    if chart.shown_value is not None:
        return chart.shown_value
    wall_us, value = chart.points[-1] if chart.points else (0, 0.0)
    return "now", value if now_us - wall_us <= _CURRENT_S * 1e6 and isfinite(value) else None


def _range(chart: Chart, known: Sequence[float]) -> tuple[float, float]:
    """Bottom and top of the chart: of the readings, but never less apart than the chart asks for."""
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
    """`left` and, where it fits, `right` at the end, then the tick."""
    room = gutter - 2 - len(left)
    if len(right) + 1 > room:
        right = ""
    return fit(left + " " * max(0, room - len(right)) + right, gutter - 2) + " " + tick
