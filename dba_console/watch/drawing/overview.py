"""The overview: what matters in the first minute, on one screen of any size; and the panels as text and JSON.

Designed for 80x24 first; wider and taller screens show more of the same, smaller ones the most important line of each
panel. Header and footer belong to the screen: these are the lines between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

import msgspec

from dba_console.core.errors import UsageError
from dba_console.core.units import human_bytes, human_count, human_pct
from dba_console.watch.drawing import charts, findings, phrases
from dba_console.watch.drawing.boxes import Box, draw_boxes
from dba_console.watch.drawing.charts import Chart, draw_chart, stall_points
from dba_console.watch.drawing.event_symbols import axis_marks
from dba_console.watch.drawing.findings import list_lines, urgent_findings
from dba_console.watch.drawing.header import HeaderState, header
from dba_console.watch.drawing.phrases import name_of
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import (
    Line,
    Span,
    Style,
    Table,
    ascii_line,
    ascii_text,
    fit,
    fit_line,
    line_text,
    line_width,
    table_lines,
    wrap_words,
)
from dba_console.watch.drawing.time_formats import format_rfc3339
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.subjects import PANEL_NAMES

# The charts of the last minutes: connections, I/O and memory on one time axis, with events marked on it.
#
# They answer one question: did the cache shrink, I/O stall and connections climb at the same time?

MOST_S, LEAST_S = 600, 120
"""The axis starts at the first reading, within these limits of length."""
_MAX_CHART_ROWS = 6
_ALL = ("connections", "stalled", "throughput", "cached", "free")
_FEWER = ("connections", "throughput", "cached", "free")
_FEWEST = ("connections", "throughput", "cached")


def recent_charts(frame: Frame, history: ChartHistory, width: int, height: int) -> list[Line]:
    """Return charts of the last minutes in at most `height` lines of `width` cells; none if they do not fit."""
    if height < 5 or width < 40:
        return []
    gutter = _gutter(width)
    names = _ALL if height >= 12 else _FEWER if height >= 10 else _FEWEST if height >= 8 else _FEWEST[: (height - 2)]
    rows, extra = divmod(height - 2, len(names))
    axis = charts.Axis.last(frame.at_us, chart_window_s(frame, history, width), width - gutter)
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


def _gutter(width: int) -> int:
    return 24 if width >= 70 else 20


def chart_window_s(frame: Frame, history: ChartHistory, width: int) -> int:
    """Return the seconds the charts span, in full minutes: those of the last ten that have data.

    So the charts of a new session are not mostly blank. A column is never shorter than the interval of two readings: a
    blank column would look like a gap in the recording.
    """
    known = [points for name in ("connections.used", "io.iowait_pct") if len(points := history.series(name)) > 1]
    if not known:
        return LEAST_S
    known_s = max(frame.at_us - points[0][0] for points in known) / 1e6
    step_s = min((points[-1][0] - points[0][0]) / (len(points) - 1) for points in known) / 1e6
    return int(min(MOST_S, max(LEAST_S, 60 * ceil(max(known_s, (width - _gutter(width)) * step_s) / 60))))


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
        return Chart("read + write", _throughput(history), partial(human_bytes, per_s=True), min_top=float(1 << 20))
    span = max((frame.memory.total_bytes or 0) / 20, 1 << 20)
    return Chart(name, history.series(f"memory.{name}_bytes"), human_bytes, starts_at_zero=False, min_span=span)


def _throughput(history: ChartHistory) -> list[charts.Point]:
    written = dict(history.series("io.write_bytes_per_s"))
    return [(at, read + written[at]) for at, read in history.series("io.read_bytes_per_s") if at in written]


# Layout rows: panels stacked, each as high as it needs and the screen allows.
#
# Every row first gets its minimum, the most important first, then its good height in the same order; remaining lines
# are given out one at a time to rows that need more. A row that does not get its minimum is left out.

LAST_RANK = 6
"""Rows from this rank on get more only after all others have their good height: blockers matter more than a session
list."""


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """Panels side by side. The numbers are lines below the title; the lowest `rank` gets lines first.

    Not shown with less than `min_rows`; all get up to `good_rows` before any gets up to `max_rows`.
    """

    names: tuple[str, ...]
    min_rows: int
    good_rows: int
    max_rows: int
    rank: int


@dataclass(frozen=True, slots=True)
class FrameWithHistory:
    """What every panel is drawn from."""

    frame: Frame
    history: ChartHistory
    drawn: dict[tuple[str, int], dict[int, list[Line]]] = field(default_factory=dict, compare=False)
    """Lines by panel and width, then by rows: a layout draws panels to learn their height."""


def panel_title(name: str, view: FrameWithHistory, width: int) -> Line:
    """Return the title of a panel that is `width` cells wide."""
    if name == "charts":
        return (Span(f"Last {chart_window_s(view.frame, view.history, width) // 60} minutes", "title"),)
    if name == "latest":
        found = _findings_title(view.frame)
        return (*found, *phrases.title_spans(PANELS["events"].title, view.frame.events))
    kind = PANELS[name]
    panel = kind.status(view.frame)
    line = phrases.title_spans(kind.title, panel)
    if name == "progress" and len(view.frame.progress.operations) > 1:
        line = (*line, Span(f" · {len(view.frame.progress.operations)} running", "dim"))
    if name == "connections" and view.frame.connections.source == "process_titles":
        line = (*line, Span(" by process title", "warn"))
    return line


def _findings_title(frame: Frame) -> Line:
    """`Findings 1 critical, 2 info · `, including those not shown here; without counts if no rule was evaluated."""
    if not frame.findings and not frame.judged:
        return ()
    kinds = Counter("silenced" if one.state == "silenced" else name_of(one.severity) for one in frame.findings)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("critical", "warning", "info", "silenced") if kinds[kind])
    return (Span("Findings", "title"), Span(f" {counts or 'none'} · ", "dim"))


def panel_lines(name: str, view: FrameWithHistory, width: int, rows: int) -> list[Line]:
    """Return the lines of one panel, at most `rows`. With space to spare it is the same as without."""
    drawn = view.drawn.setdefault((name, width), {})
    for space, lines in drawn.items():
        if len(lines) <= rows <= space:
            return lines
    drawn[rows] = _draw_panel(name, view, width, rows)
    return drawn[rows]


def _draw_panel(name: str, view: FrameWithHistory, width: int, rows: int) -> list[Line]:
    if name == "charts":
        return recent_charts(view.frame, view.history, width, rows)
    if name == "latest":
        return _event_lines(view, width, rows)
    return PANELS[name].compact(view.frame, width, rows, view.history)


def _event_lines(view: FrameWithHistory, width: int, rows: int) -> list[Line]:
    """Return urgent findings, and below them events, as far as they fit."""
    calling = urgent_findings(view.frame.findings)
    found = findings.list_lines(calling, width, rows) if calling else []
    if len(found) >= rows:
        return found
    shown_ids = {one.id for one in calling}
    others = [row for row in view.frame.events.rows if row.finding is None or row.finding not in shown_ids]
    events = msgspec.structs.replace(view.frame.events, rows=others)
    frame = msgspec.structs.replace(view.frame, panels={**view.frame.panels, "events": events})
    return found + PANELS["events"].compact(frame, width, rows - len(found), view.history)


def box_columns(layout_row: LayoutRow, width: int) -> list[tuple[str, int, int]]:
    """Return name, cells of the box, cells of its lines: boxes fill `width` with one column between neighbours.

    Lines keep a blank to the left, and to the right if another box follows.
    """
    count = len(layout_row.names)
    space = width - (count - 1)
    placed = []
    for index, name in enumerate(layout_row.names):
        cells = space * (index + 1) // count - space * index // count
        placed.append((name, cells, cells - (1 if index == count - 1 else 2)))
    return placed


def stack_rows(
    view: FrameWithHistory, layout: Sequence[LayoutRow], x: int, y: int, width: int, height: int
) -> list[Box]:
    """Return boxes for the layout rows, from (x, y) down, filling `height` exactly; the last row takes the rest."""
    needed = [_needed_rows(row, view, width) for row in layout]
    rows = distribute_rows(layout, needed, height)
    if rows != needed:
        layout = [_folded(row) if _is_empty(row, view) else row for row in layout]
        needed = [_needed_rows(row, view, width) for row in layout]
        rows = distribute_rows(layout, needed, height)
    shown = [index for index, count in enumerate(rows) if count is not None]
    if not shown:
        return []
    spare = height - sum(1 + (rows[index] or 0) for index in shown)
    rows[shown[-1]] = (rows[shown[-1]] or 0) + spare
    boxes: list[Box] = []
    for index in shown:
        count = rows[index] or 0
        left = x
        for name, cells, inside in box_columns(layout[index], width):
            title, lines = panel_title(name, view, inside), panel_lines(name, view, inside, max(1, count))
            if count == 0:
                title, lines = (*title, *((Span(" · ", "dim"), *lines[0]) if lines else ())), []
            boxes.append(Box(left, y, cells, count + 1, title, lines))
            left += cells + 1
        y += count + 1
    return boxes


def _is_empty(layout_row: LayoutRow, view: FrameWithHistory) -> bool:
    """Check whether the row only shows that there are no locks or no operations."""
    locks, progress = view.frame.locks, view.frame.progress
    if layout_row.names == ("locks",):
        return locks.status == "ok" and locks.waiting == 0 and not (locks.trees or locks.note)
    return layout_row.names == ("progress",) and progress.status == "ok" and not (progress.operations or progress.note)


def _folded(layout_row: LayoutRow) -> LayoutRow:
    """Return the row with its only line in its title: panels that are cut get the space."""
    return replace(layout_row, min_rows=0, good_rows=0, max_rows=0)


def needed_height(view: FrameWithHistory, layout: Sequence[LayoutRow], width: int, *, good: bool = False) -> int:
    """Return the lines needed if space were unlimited, titles included; with `good` at most the good heights."""
    needs = [(row, _needed_rows(row, view, width)) for row in layout]
    return sum(1 + (min(row.good_rows, rows) if good else rows) for row, rows in needs)


def _needed_rows(layout_row: LayoutRow, view: FrameWithHistory, width: int) -> int:
    if layout_row.names == ("charts",):
        return layout_row.max_rows
    needed = (
        len(panel_lines(name, view, inside, layout_row.max_rows)) for name, _, inside in box_columns(layout_row, width)
    )
    return max(layout_row.min_rows, min(layout_row.max_rows, max(needed)))


def distribute_rows(layout: Sequence[LayoutRow], needed: Sequence[int], height: int) -> list[int | None]:
    """Return the lines of each layout row, None for one that is left out."""
    rows: list[int | None] = [None] * len(layout)
    ranked = sorted(range(len(layout)), key=lambda index: layout[index].rank)
    first = [index for index in ranked if layout[index].rank < LAST_RANK]
    for group in (first, ranked[len(first) :]):
        for index in group:
            if height >= layout[index].min_rows + 1:
                rows[index] = layout[index].min_rows
                height -= layout[index].min_rows + 1
        for index in group:
            if (count := rows[index]) is not None:
                more = min(height, max(0, min(needed[index], layout[index].good_rows) - count))
                rows[index] = count + more
                height -= more
    _distribute_rest(rows, ranked, needed, height)
    return rows


def _distribute_rest(rows: list[int | None], ranked: Sequence[int], limits: Sequence[int], height: int) -> None:
    """Give out one line at a time, in order of rank, to rows below `limits`, until none are left or needed."""
    growing = True
    while height > 0 and growing:
        growing = False
        for index in ranked:
            count = rows[index]
            if count is not None and count < limits[index] and height > 0:
                rows[index] = count + 1
                height -= 1
                growing = True


WIDE, BROAD, NARROW, SHORT = 150, 118, 60, 15

_STANDARD = (
    LayoutRow(("connections", "io"), 3, 3, 6, 0),
    LayoutRow(("memory", "safety"), 3, 3, 6, 1),
    LayoutRow(("replication", "disks"), 2, 3, 5, 5),
    LayoutRow(("progress",), 1, 2, 6, 3),
    LayoutRow(("locks",), 1, 2, 8, 4),
    LayoutRow(("latest",), 2, 3, 12, 2),
    LayoutRow(("charts",), 6, 12, 17, 7),
    LayoutRow(("sessions",), 3, 6, 40, 6),
)
_BROAD = (
    LayoutRow(("connections", "io", "replication"), 3, 3, 6, 0),
    LayoutRow(("memory", "safety", "disks"), 3, 3, 6, 1),
    LayoutRow(("charts",), 5, 12, 17, 5),
    LayoutRow(("progress",), 1, 2, 6, 3),
    LayoutRow(("locks",), 1, 2, 8, 4),
    LayoutRow(("latest",), 2, 3, 12, 2),
    LayoutRow(("sessions",), 3, 5, 40, 6),
)
_WIDE_LEFT = (
    LayoutRow(("connections", "io"), 3, 4, 8, 0),
    LayoutRow(("memory", "safety"), 3, 5, 6, 1),
    LayoutRow(("replication", "disks"), 2, 4, 8, 2),
    LayoutRow(("progress",), 1, 4, 8, 3),
    LayoutRow(("locks",), 1, 4, 12, 4),
)
_WIDE_BELOW = (LayoutRow(("latest",), 2, 4, 12, 0), LayoutRow(("sessions",), 3, 8, 60, 1))
_FINDING_LINES = 6
"""Lines for findings before other panels get their good height."""
_MIN_ROWS_BELOW = 12
"""Lines for the panels below, titles included."""
_CHARTS = (LayoutRow(("charts",), 5, 17, 60, 0),)
_BRIEF = (
    ("conn", "connections"), ("io", "io"), ("mem", "memory"), ("disk", "disks"), ("lock", "locks"),
    ("repl", "replication"), ("safe", "safety"), ("dump", "progress"),
)  # fmt: skip

POSTMASTER_STOPPED_TEXT = "the postmaster is stopped (SIGSTOP): no connections until it gets SIGCONT"


def overview(frame: Frame, history: ChartHistory, width: int, height: int, *, ascii: bool = False) -> list[Line]:
    """Return the body of the overview: at most `height` lines of at most `width` cells."""
    if width < 1 or height < 1:
        return []
    view = FrameWithHistory(frame, history)
    alert_lines = alerts(frame, width - 1)[: max(1, height // 4)]
    space = height - len(alert_lines)
    lines = [fit_line(one, width) for one in alert_lines]
    if width < NARROW or height < SHORT:
        lines += [fit_line(one, width) for one in _brief_lines(view, width, space)]
    else:
        boxes = (
            _wide_boxes(view, width, space - 1)
            if width >= WIDE and space >= 24
            else _stacked_boxes(view, width, space - 1)
        )
        boxes.append(Box(0, space - 1, width, 1, ()))
        lines += draw_boxes(boxes, width, space)
    return [ascii_line(one) for one in lines[:height]] if ascii else lines[:height]


def _stacked_boxes(view: FrameWithHistory, width: int, height: int) -> list[Box]:
    return stack_rows(
        view, _with_room_for_findings(view, _BROAD if width >= BROAD else _STANDARD, width), 0, 0, width, height
    )


def _wide_boxes(view: FrameWithHistory, width: int, height: int) -> list[Box]:
    """The panels of the 80-column layout on the left, the charts beside them, events and sessions below."""
    left = max(80, width // 2)
    bands_below = _with_room_for_findings(view, _WIDE_BELOW, width)
    below = needed_height(view, bands_below, width)
    # Sessions take what is left: waiting sessions and their reasons are shown above them.
    enough = min(needed_height(view, _WIDE_LEFT, left, good=True), height - _MIN_ROWS_BELOW)
    top = max(20, enough, min(30, height - below, height * 2 // 3))
    boxes = stack_rows(view, _WIDE_LEFT, 0, 0, left, top)
    boxes += stack_rows(view, _CHARTS, left + 1, 0, width - left - 1, top)
    return boxes + stack_rows(view, bands_below, 0, top, width, height - top)


def _with_room_for_findings(view: FrameWithHistory, layout: tuple[LayoutRow, ...], width: int) -> tuple[LayoutRow, ...]:
    """Return the layout rows; urgent findings get their lines before other panels get their good height."""
    needed = len(list_lines(urgent_findings(view.frame.findings), width - 1, _FINDING_LINES))
    if needed < 2:
        return layout
    return tuple(
        replace(row, min_rows=min(3, needed), good_rows=needed + 1, rank=0) if row.names == ("latest",) else row
        for row in layout
    )


def _brief_lines(view: FrameWithHistory, width: int, height: int) -> list[Line]:
    """Return one line for each panel, most important first; remaining lines show the last events."""
    lines: list[Line] = []
    for label, name in _BRIEF[:height]:
        first = panel_lines(name, view, width - 5, 1)
        lines.append((Span(f"{label:<5}", "title"), *(first[0] if first else (Span("?", "stale"),))))
    return lines + panel_lines("latest", view, width, height - len(lines)) if len(lines) < height else lines


def alerts(frame: Frame, width: int) -> list[Line]:
    """Return what makes all data below doubtful: no connection, a failing recording."""
    lines: list[Line] = []
    silent = frame.sessions.status == "timeout"
    if frame.target.note and (silent or frame.target.state != "connected"):
        lines += _alert_lines(frame.target.note, "crit", width)
    if frame.target.postmaster_stopped:
        lines += _alert_lines(POSTMASTER_STOPPED_TEXT, "crit", width)
    if frame.own.recording in ("lagging", "failed") and frame.own.recording_note:
        lines += _alert_lines(frame.own.recording_note, "warn", width)
    return lines


def _alert_lines(sentence: str, style: Style, width: int) -> list[Line]:
    return [
        (Span((" ! " if index == 0 else "   ") + text, style),)
        for index, text in enumerate(wrap_words(sentence, width - 3))
    ]


# The panels as text and as JSON, for `show`: the same functions as the screen, so both agree.

_TEXT_HEADER = HeaderState()


def panel_names(names: Sequence[str]) -> list[str]:
    """Return the names with their spelling of the registry. Raises UsageError for an unknown panel."""
    for name in names:
        if name not in PANELS:
            raise UsageError(f"no such panel: {name}", hint="panels are " + ", ".join(PANELS))
    return list(names)


def show_text(
    frame: Frame, names: Sequence[str] | None, width: int, history: ChartHistory | None = None, *, ascii: bool = False
) -> str:
    """Return the overview, or the named panels in full, as lines of text ending in a newline.

    Raises UsageError for an unknown panel.
    """
    past = history if history is not None else ChartHistory()
    lines: list[Line] = [header(frame, _TEXT_HEADER, width)]
    if names:
        lines += alerts(frame, width)
        for name in panel_names(names):
            lines += panel_in_full(name, frame, past, width)
    else:
        lines += overview(frame, past, width, 22 if width < BROAD else 36 if width < WIDE else 46)
    text = "\n".join(line_text(one) for one in lines) + "\n"
    return ascii_text(text) if ascii else text


def panel_in_full(name: str, frame: Frame, history: ChartHistory, width: int) -> list[Line]:
    """Return everything known of a panel: its title, its lines, its tables."""
    detail = PANELS[name].full(frame, max(20, width), history)
    lines = [title_rule(panel_title(name, FrameWithHistory(frame, history), width), width), *detail.head]
    for table in detail.tables:
        lines += _table_text(table, "" if table.title == detail.title else table.title, width)
    return [fit_line(one, width) for one in lines]


def _table_text(table: Table, words: str, width: int) -> list[Line]:
    heading: list[Line] = [(), (Span(words, "title"),)] if words else [()]
    if not table.rows:
        return [*heading, (Span("  " + table.empty, "dim"),)]
    return [*heading, *table_lines(table.columns, table.rows, width)]


def title_rule(words: Line, width: int) -> Line:
    """Return the first line of a panel in full: its title, and the status of its data."""
    return (Span("─ ", "dim"), *words, Span(" " + "─" * max(0, width - line_width(words) - 3), "dim"))


def show_json(frame: Frame) -> bytes:
    """Return one tick as one line of JSON in the contract's shape, without a newline.

    Unknown values are null, and so are NaN and infinity.
    """
    return msgspec.json.encode(
        {
            "at": format_rfc3339(frame.at_us),
            "seq": frame.seq,
            "target": frame.target,
            "panels": {name: getattr(frame, name) for name in PANEL_NAMES},
            "findings": frame.findings,
            "self": frame.own,
        }
    )
