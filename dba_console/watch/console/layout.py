"""Events of the session on the screen: the last ones in the overview, all with their text on the page."""

from __future__ import annotations

from dba_console.watch.console.panel import EventRow, EventsPanel
from dba_console.watch.drawing import phrases
from dba_console.watch.drawing.event_symbols import HIDDEN_KINDS, event_sign, severity_style
from dba_console.watch.drawing.phrases import text_line
from dba_console.watch.drawing.text_elements import Detail, Line, Span, Style, Table, TableRow, clean
from dba_console.watch.drawing.time_formats import local_date_and_time, local_time_of_day
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.layout import Layout
from dba_console.watch.tables import Column, cells


def visible_events(panel: EventsPanel) -> list[EventRow]:
    """Return the events without those that only show that the session is running."""
    return [row for row in panel.rows if row.kind not in HIDDEN_KINDS]


def _style(row: EventRow) -> Style:
    return severity_style(row.severity)


def _sign(row: EventRow) -> str:
    return event_sign(row.kind, row.severity)


_COLUMNS = (
    Column("severity", "", 1, text=_sign, style=_style),
    Column("at", "time", 19, help="Local time", text=lambda row: local_date_and_time(row.at), descending=True),
    Column("kind", "kind", 18, spare=2),
    Column("tag", "tag", 12, spare=3),
    Column("text", "event", 60, text=lambda row: clean(row.text[:400]), style=_style, grow=True),
)


def compact(frame: Frame, width: int, height: int, history: ChartHistory) -> list[Line]:
    """Return the last events that fit, in order of time."""
    panel = frame.of(EventsPanel)
    lines = [_line(row) for row in visible_events(panel)[-height:]] if height > 0 else []
    if not lines and panel.status == "ok":
        lines = [text_line("no events in this session yet", "dim")]
    return phrases.body(panel, bool(lines), lines, width, height)


def _line(row: EventRow) -> Line:
    return (
        Span(_sign(row) + " ", _style(row)),
        Span(local_time_of_day(row.at) + "  ", "dim"),
        Span(clean(row.text[:500]), _style(row)),
    )


def full(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.of(EventsPanel)
    shown = visible_events(panel)
    # The same tag on every line carries no information.
    tags = len({row.tag for row in shown}) > 1
    columns = tuple(column for column in _COLUMNS if tags or column.id != "tag")
    rows = tuple(_table_row(row, columns) for row in reversed(shown))
    events = Table("events", columns, rows, "at", "Events, newest first", "no events in this session yet")
    return Detail("Events", phrases.head_lines(panel, (), width), (events,))


def _table_row(row: EventRow, columns: tuple[Column, ...]) -> TableRow:
    return TableRow(f"{row.seq} {row.at}", cells(columns, row), lambda: (text_line(clean(row.text)),))


LAYOUT = Layout(name="events", title="Events", key="0", compact=compact, full=full)
