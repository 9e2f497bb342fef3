"""The evidence of one finding: its sentence, its numbers, and their course around the moment it began."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Finding, Frame
from dba_console.panels import charts
from dba_console.panels.event_lines import axis_marks
from dba_console.panels.field_formats import series_title, unit_format
from dba_console.panels.findings import evidence_lines, summary_lines, urgent_findings
from dba_console.panels.labelled_chart import Chart, draw_chart
from dba_console.panels.text_elements import Line, Span, fit, fit_line, line_width
from dba_console.panels.time_formats import parse_rfc3339, time_of_day
from dba_console.panels.wrapping import wrap_lines

BEFORE_US, AFTER_US = 180_000_000, 420_000_000
"""Charted at most: three minutes before it began, and seven after."""
MIN_PERIOD_US = 60_000_000
_MIN_COLUMN_US = 1_100_000
"""A column spans a tick at least: columns between two ticks would be blank, and a chart of stripes."""
_TALLEST, _TALL_SCREEN = 5, 36
"""Rows of a chart at most; half as many again from that height of the screen on."""
_AXIS_LINES = 2
"""Lines of the time axis: signs, clock."""
_FEW_CHARTS = 3
"""So many charts have two lines each, whatever the room; more of them one."""
_FIRST_SERIES = ("connections.used", "io.psi_full_pct", "memory.cached_bytes", "memory.free_bytes")
CONTEXT_SERIES = ("connections.used", "io.psi_full_pct", "memory.cached_bytes")
"""What is charted where no series shows the finding itself: what else went on when it began."""
_CURRENT_US = 10_000_000
"""Charts that end longer ago do not tell how things are now."""


def evidence_screen(frame: Frame, one: Finding, history: ChartHistory, width: int, height: int) -> list[Line]:
    """The screen of a finding in at most `height` lines, from its first line on."""
    return visible_lines(all_evidence_lines(frame, one, history, width, height), height, 0)


def all_evidence_lines(
    frame: Frame, one: Finding, history: ChartHistory, width: int, height: int, ended_us: int | None = None
) -> list[Line]:
    """All lines: what is told, charts as high as the room of `height` lets them be, and all numbers.

    Charts stand above the numbers, for they prove it at a glance; the sentence has the numbers that decide.
    `ended_us`: when the finding was seen last, where it is not open any more.
    """
    lines = _wrapped_lines(summary_lines(one, frame.at_us if ended_us is None else ended_us), width)
    numbers = _wrapped_lines(evidence_lines(one), width)
    series = order_series(one.series) or (CONTEXT_SERIES if urgent_findings([one]) else ())
    gutter = 30 if width >= 100 else 24
    cells = width - gutter
    if series and cells > 0:
        axis = charts.Axis(*chart_period(parse_rfc3339(one.since) or frame.at_us, frame.at_us, history, cells), cells)
        tallest = _TALLEST if height < _TALL_SCREEN else _TALLEST * 3 // 2
        room = height - len(lines) - len(numbers) - 1 - _AXIS_LINES
        min_chart_rows = len(series) * (2 if len(series) <= _FEW_CHARTS else 1)
        rows = max(min_chart_rows, min(tallest * len(series), room))
        lines += [_period_rule(one, axis, width), *_charts(series, frame.at_us, history, axis, gutter, rows)]
        lines += _axis([*axis_marks(frame), *_start_mark(one)], axis, gutter)
    return [fit_line(line, width) for line in (*lines, *numbers)]


def order_series(series: Sequence[str]) -> tuple[str, ...]:
    """The series of many joined rules, those first that show who waits and for what: not all fit every screen.

    >>> of_many = ["locks.waiting", "io.iowait_pct", "io.psi_full_pct", "connections.used", "memory.cached_bytes"]
    >>> order_series(of_many)[:3]
    ('connections.used', 'io.psi_full_pct', 'memory.cached_bytes')
    """
    if len(series) <= _FEW_CHARTS:
        return tuple(series)
    first = [name for name in _FIRST_SERIES if name in series]
    return (*first, *(name for name in series if name not in first))


def _wrapped_lines(lines: Sequence[Line], width: int) -> list[Line]:
    return [(Span(" "), *line) for line in wrap_lines(lines, max(1, width - 1))]


def visible_lines(lines: list[Line], height: int, top: int) -> list[Line]:
    """The lines from `top` on; where some are left below, the last line says how many."""
    shown = lines[top : top + max(0, height)]
    left = len(lines) - top - height
    if left > 0 and height > 1:
        cells = line_width(shown[-1])
        shown[-1] = fit_line((Span(f" … ↓ {left + 1} more lines", "dim"),), cells)
    return shown


def chart_period(since_us: int, now_us: int, history: ChartHistory, cells: int = 0) -> tuple[int, int]:
    """From when to when it is charted in `cells` columns: around its beginning, as far as anything is known of it.

    Where it began before anything known, what is known of it up to now.
    """
    oldest = _oldest_us(history)
    least_us = max(MIN_PERIOD_US, cells * _MIN_COLUMN_US)
    if oldest is not None and since_us < oldest - BEFORE_US:
        return min(oldest, now_us - least_us), now_us
    start = since_us - BEFORE_US if oldest is None else max(since_us - BEFORE_US, min(oldest, since_us))
    end = min(now_us, since_us + AFTER_US)
    return min(start, end - least_us), end


def _oldest_us(history: ChartHistory) -> int | None:
    times = [points[0][0] for name in ("connections.used", "io.iowait_pct") if (points := history.series(name))]
    return min(times, default=None)


def _period_rule(one: Finding, axis: charts.Axis, width: int) -> Line:
    since_us = parse_rfc3339(one.since)
    span = f"{time_of_day(axis.start_us)} to {time_of_day(axis.end_us)}"
    around = since_us is not None and axis.start_us <= since_us <= axis.end_us
    what = "" if one.series else "what else went on "
    text = f"─ {what}around its start, {span} " if around else f"─ {what}{span}; it began before that "
    return (Span(text + "─" * max(0, width - len(text)), "dim"),)


def _charts(
    series: Sequence[str], now_us: int, history: ChartHistory, axis: charts.Axis, gutter: int, rows: int
) -> list[Line]:
    """The charts in so many lines, shared evenly."""
    each, extra = divmod(rows, len(series))
    past = now_us - axis.end_us > _CURRENT_US
    drawn = [
        draw_chart(_chart(name, history, axis, past), axis, gutter, each + (place < extra))
        for place, name in enumerate(series)
    ]
    return [line for chart in drawn for line in chart]


def _axis(signs: Sequence[tuple[int, str]], axis: charts.Axis, gutter: int) -> list[Line]:
    return [
        (Span(fit(" events", gutter - 1) + "│", "dim"), Span(charts.symbol_line(signs, axis), "changed")),
        (Span(fit("", gutter - 1) + "└", "dim"), Span(charts.clock_line(axis), "dim")),
    ]


def fill_between_readings(points: list[charts.Point], step_us: int, *, forward: bool) -> list[charts.Point]:
    """Points for every step between two readings of what is not read every tick.

    A level stands until it is read anew, a rate is that of all the time before its reading. What is longer than the
    reading's own usual interval is a gap, and stays one.
    """
    spans = sorted(later[0] - earlier[0] for earlier, later in pairwise(points))
    typical_us = spans[len(spans) // 2] * 3 // 2 if spans else 0
    if typical_us <= step_us or step_us < 1:
        return points
    filled = points[:1]
    for (earlier_us, before), (later_us, after) in pairwise(points):
        if later_us - earlier_us <= typical_us:
            value = before if forward else after
            filled += [(at_us, value) for at_us in range(earlier_us + step_us, later_us, step_us)]
        filled.append((later_us, after))
    return filled


def _start_mark(one: Finding) -> list[tuple[int, str]]:
    since_us = parse_rfc3339(one.since)
    return [] if since_us is None else [(since_us, "!")]


def _chart(name: str, history: ChartHistory, axis: charts.Axis, past: bool) -> Chart:
    ending, write = unit_format(name)
    points = [point for point in history.series(name) if point[0] <= axis.end_us]
    level = ending == "_bytes" or name.endswith(("next_xid", "next_mxid"))
    span = 0.02 * max((value for _, value in points), default=0.0) if level else 0.0
    top = {"_pct": 10.0, "avg10": 10.0, "_bytes_per_s": float(1 << 20)}.get(ending, 0.0)
    shown_value = (time_of_day(points[-1][0]), points[-1][1]) if past and points else None
    shown = fill_between_readings(points, (axis.end_us - axis.start_us) // axis.cells, forward=level)
    return Chart(
        series_title(name),
        shown,
        write,
        starts_at_zero=not level,
        min_top=top,
        min_span=max(span, 1.0 if level else 0.0),
        shown_value=shown_value,
    )
