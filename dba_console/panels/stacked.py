"""The picture of the last minutes: connections, I/O and memory over one time axis, with what happened marked on it.

Made for one question: did the cache shrink, I/O stop and connections climb at the same moment?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from dba_console.frames.history import History
from dba_console.frames.model import Frame
from dba_console.panels import charts
from dba_console.panels.cells import Line, Span, Style, fit
from dba_console.panels.happenings import marks
from dba_console.panels.io import stall_points
from dba_console.units import human_bytes, human_count, human_pct

MOST_S, LEAST_S = 600, 120
"""The axis begins at the first reading, but is never longer or shorter than this."""
_NOW_S = 10.0
"""A last reading older than this is not how things are now."""
_TALLEST = 6
_ALL = ("connections", "stalled", "throughput", "cached", "free")
_FEWER = ("connections", "throughput", "cached", "free")
_FEWEST = ("connections", "throughput", "cached")


@dataclass(frozen=True, slots=True)
class _Chart:
    """One chart: what it shows, its points, the top it always has (0 for none) and how its numbers are written."""

    title: str
    points: Sequence[charts.Point]
    write: Callable[[float | None], str]
    floor: bool = True
    """The chart stands on 0; else on its own lowest value, labelled."""
    top: float = 0
    span: float = 0
    """At least this much from bottom to top, so that noise does not look like an avalanche."""
    said: tuple[str, float | None] | None = None
    """What stands beside the chart in place of `now` and its last point: the figure its panel tells."""


def stacked(frame: Frame, history: History, width: int, height: int) -> list[Line]:
    """Charts of the last minutes in at most `height` lines of `width` cells; none where they would not fit."""
    if height < 5 or width < 40:
        return []
    gutter = 24 if width >= 70 else 20
    names = _ALL if height >= 12 else _FEWER if height >= 10 else _FEWEST if height >= 8 else _FEWEST[: (height - 2)]
    rows, extra = divmod(height - 2, len(names))
    axis = charts.Axis(frame.at_us - window_s(frame, history) * 1_000_000, frame.at_us, width - gutter)
    lines: list[Line] = []
    for index, name in enumerate(names):
        lines += _draw(_chart(name, frame, history), axis, gutter, max(1, min(_TALLEST, rows + (index < extra))))
    lines.append((Span(fit(" events", gutter - 1) + "│", "dim"), Span(charts.sign_line(marks(frame), axis), "changed")))
    lines.append((Span(fit("", gutter - 1) + "└", "dim"), Span(charts.clock_line(axis), "dim")))
    return lines


def window_s(frame: Frame, history: History) -> int:
    """Seconds the charts span, in full minutes: what is known of the last ten, so that a young session is no blank.

    Never so few that a column is narrower than the distance of two readings.
    """
    known = [points for name in ("connections.used", "io.iowait_pct") if len(points := history.series(name)) > 1]
    if not known:
        return LEAST_S
    known_s = max(frame.at_us - points[0][0] for points in known) / 1e6
    step_s = min((points[-1][0] - points[0][0]) / (len(points) - 1) for points in known) / 1e6
    return int(min(MOST_S, max(LEAST_S, 60 * ceil(max(known_s, 100 * step_s) / 60))))


def _chart(name: str, frame: Frame, history: History) -> _Chart:
    if name == "connections":
        usable = frame.connections.usable
        return _Chart("connections", history.series("connections.used"), human_count, top=float(usable or 0))
    if name == "stalled":
        points, label = stall_points(history)
        if label != "full":
            return _Chart("iowait", points, human_pct, top=10)
        return _Chart("I/O full stall", points, human_pct, top=10, said=("10s avg", frame.io.psi_full_avg10))
    if name == "throughput":
        return _Chart("read + write", _throughput(history), _rate, top=float(1 << 20))
    span = max((frame.memory.total_bytes or 0) / 20, 1 << 20)
    return _Chart(name, history.series(f"memory.{name}_bytes"), human_bytes, floor=False, span=span)


def _throughput(history: History) -> list[charts.Point]:
    written = dict(history.series("io.write_bytes_per_s"))
    return [(at, read + written[at]) for at, read in history.series("io.read_bytes_per_s") if at in written]


def _rate(value: float | None) -> str:
    return human_bytes(value, per_s=True)


def _draw(chart: _Chart, axis: charts.Axis, gutter: int, rows: int) -> list[Line]:
    fold = charts.peaks if chart.floor else charts.latest
    values = fold(chart.points, axis)
    known = [value for value in values if value is not None]
    low, high = _range(chart, known)
    labels = _labels(chart, known, _said(chart, axis.end_us), low, high, gutter, rows)
    if not known:
        blank = fit("  nothing known yet", axis.cells)
        return [
            (Span(label, "dim"), Span(blank if row == rows - 1 else "", "stale")) for row, label in enumerate(labels)
        ]
    style: Style = "bar"
    drawn = charts.plot(values, low, high, rows)
    return [(Span(label, "dim"), Span(text, style)) for label, text in zip(labels, drawn, strict=True)]


def _said(chart: _Chart, now_us: int) -> tuple[str, float | None]:
    """The word and the number beside the chart: the last reading, not the peak of the last column."""
    if chart.said is not None:
        return chart.said
    wall_us, value = chart.points[-1] if chart.points else (0, 0.0)
    return "now", value if now_us - wall_us <= _NOW_S * 1e6 and isfinite(value) else None


def _range(chart: _Chart, known: Sequence[float]) -> tuple[float, float]:
    """Bottom and top of the chart: of the readings, but never less apart than the chart asks for."""
    if not known:
        return 0.0, chart.top
    if chart.floor:
        return 0.0, max(chart.top, *known)
    low, high = min(known), max(known)
    missing = max(0.0, chart.span - (high - low)) / 2
    low = max(0.0, low - missing)
    return low, max(high + missing, low + chart.span)


def _labels(
    chart: _Chart,
    known: Sequence[float],
    said: tuple[str, float | None],
    low: float,
    high: float,
    gutter: int,
    rows: int,
) -> list[str]:
    top, bottom = (chart.write(high), chart.write(low)) if known else ("", "")
    word, value = said[0], chart.write(said[1])
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
