"""The picture of the last minutes: connections, I/O and memory over one time axis, with what happened marked on it.

Made for one question: did the cache shrink, I/O stop and connections climb at the same moment?
"""

from __future__ import annotations

from math import ceil

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels import charts
from dba_console.panels.event_lines import axis_marks
from dba_console.panels.io import stall_points
from dba_console.panels.labelled_chart import Chart, draw_chart
from dba_console.panels.text_elements import Line, Span, fit
from dba_console.units import human_bytes, human_count, human_pct

MOST_S, LEAST_S = 600, 120
"""The axis begins at the first reading, but is never longer or shorter than this."""
_MAX_CHART_ROWS = 6
_ALL = ("connections", "stalled", "throughput", "cached", "free")
_FEWER = ("connections", "throughput", "cached", "free")
_FEWEST = ("connections", "throughput", "cached")


def recent_charts(frame: Frame, history: ChartHistory, width: int, height: int) -> list[Line]:
    """Charts of the last minutes in at most `height` lines of `width` cells; none where they would not fit."""
    if height < 5 or width < 40:
        return []
    gutter = 24 if width >= 70 else 20
    names = _ALL if height >= 12 else _FEWER if height >= 10 else _FEWEST if height >= 8 else _FEWEST[: (height - 2)]
    rows, extra = divmod(height - 2, len(names))
    axis = charts.Axis(frame.at_us - chart_window_s(frame, history) * 1_000_000, frame.at_us, width - gutter)
    lines: list[Line] = []
    for index, name in enumerate(names):
        lines += draw_chart(
            _chart(name, frame, history), axis, gutter, max(1, min(_MAX_CHART_ROWS, rows + (index < extra)))
        )
    lines.append(
        (Span(fit(" events", gutter - 1) + "│", "dim"), Span(charts.symbol_line(axis_marks(frame), axis), "changed"))
    )
    lines.append((Span(fit("", gutter - 1) + "└", "dim"), Span(charts.clock_line(axis), "dim")))
    return lines


def chart_window_s(frame: Frame, history: ChartHistory) -> int:
    """Seconds the charts span, in full minutes: what is known of the last ten, so that a young session is no blank.

    Never so few that a column is narrower than the distance of two readings.
    """
    known = [points for name in ("connections.used", "io.iowait_pct") if len(points := history.series(name)) > 1]
    if not known:
        return LEAST_S
    known_s = max(frame.at_us - points[0][0] for points in known) / 1e6
    step_s = min((points[-1][0] - points[0][0]) / (len(points) - 1) for points in known) / 1e6
    return int(min(MOST_S, max(LEAST_S, 60 * ceil(max(known_s, 100 * step_s) / 60))))


def _chart(name: str, frame: Frame, history: ChartHistory) -> Chart:
    if name == "connections":
        usable = frame.connections.usable
        return Chart("connections", history.series("connections.used"), human_count, min_top=float(usable or 0))
    if name == "stalled":
        points, label = stall_points(history)
        if label != "full":
            return Chart("iowait", points, human_pct, min_top=10)
        return Chart("I/O full stall", points, human_pct, min_top=10, shown_value=("10s avg", frame.io.psi_full_avg10))
    if name == "throughput":
        return Chart("read + write", _throughput(history), _bytes_rate_text, min_top=float(1 << 20))
    span = max((frame.memory.total_bytes or 0) / 20, 1 << 20)
    return Chart(name, history.series(f"memory.{name}_bytes"), human_bytes, starts_at_zero=False, min_span=span)


def _throughput(history: ChartHistory) -> list[charts.Point]:
    written = dict(history.series("io.write_bytes_per_s"))
    return [(at, read + written[at]) for at, read in history.series("io.read_bytes_per_s") if at in written]


def _bytes_rate_text(value: float | None) -> str:
    return human_bytes(value, per_s=True)
