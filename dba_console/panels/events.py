"""Events: what happened in this session, newest last."""

from __future__ import annotations

from collections.abc import Collection

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import EventRow, Frame
from dba_console.panels import status_text
from dba_console.panels.event_lines import event_line, event_sign, severity_style, visible_events
from dba_console.panels.phrases import name_of, text_line
from dba_console.panels.text_elements import Cell, Detail, Line, Table, TableColumn, TableRow, clean
from dba_console.panels.time_formats import local_date_and_time


def compact(
    frame: Frame, width: int, height: int, history: ChartHistory, shown_ids: Collection[str] = frozenset()
) -> list[Line]:
    """The last events that fit, in the order they happened; without those that raised a finding of `shown_ids`."""
    panel = frame.events
    rows = [row for row in visible_events(panel.rows) if row.finding is None or row.finding not in shown_ids]
    lines = [event_line(row) for row in rows[-height:]] if height > 0 else []
    if not lines and panel.status == "ok":
        lines = [text_line("nothing has happened in this session yet", "dim")]
    return status_text.body(panel, bool(lines), lines, width, height)


_COLUMNS = (
    TableColumn("sign", "", 1),
    TableColumn("at", "time", 19, help="Local time", sort_key="T", descending=True),
    TableColumn("kind", "kind", 18, sort_key="K", spare=2),
    TableColumn("tag", "tag", 12, sort_key="G", spare=3),
    TableColumn("text", "what happened", 60, grow=True),
)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.events
    shown = visible_events(panel.rows)
    # One tag on every line tells nothing.
    tags = len({row.tag for row in shown}) > 1
    rows = tuple(_event_row(row, tags=tags) for row in reversed(shown))
    columns = tuple(column for column in _COLUMNS if tags or column.id != "tag")
    events = Table("events", columns, rows, "at", "Events, newest first", "nothing has happened in this session yet")
    return Detail("Events", status_text.head_lines(panel, (), width), (events,))


def _event_row(row: EventRow, *, tags: bool) -> TableRow:
    style = severity_style(row.severity)
    return TableRow(
        f"{row.seq} {row.at}",
        (
            Cell(event_sign(row.kind, row.severity), row.kind, style),
            Cell(local_date_and_time(row.at), row.at),
            Cell(name_of(row.kind), row.kind),
            *((Cell(name_of(row.tag), row.tag),) if tags else ()),
            Cell(clean(row.text[:400]), row.text[:400], style),
        ),
        (text_line(clean(row.text)),),
    )
