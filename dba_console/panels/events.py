"""Events: what happened in this session, newest last."""

from __future__ import annotations

from collections.abc import Collection

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import EventRow, Frame
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Table, clean
from dba_console.panels.happenings import event_line, sign_of, style_of, worth_showing
from dba_console.panels.phrases import name_of, said
from dba_console.panels.times import moment_of


def compact(
    frame: Frame, width: int, height: int, history: ChartHistory, told: Collection[str] = frozenset()
) -> list[Line]:
    """The last events that fit, in the order they happened; without those that raised a finding of `told`."""
    panel = frame.events
    rows = [row for row in worth_showing(panel.rows) if row.finding is None or row.finding not in told]
    lines = [event_line(row) for row in rows[-height:]] if height > 0 else []
    if not lines and panel.status == "ok":
        lines = [said("nothing has happened in this session yet", "dim")]
    return states.body(panel, bool(lines), lines, width, height)


_COLUMNS = (
    Column("sign", "", 1),
    Column("at", "time", 19, help="Local time", sort_key="T", descending=True),
    Column("kind", "kind", 18, sort_key="K", spare=2),
    Column("tag", "tag", 12, sort_key="G", spare=3),
    Column("text", "what happened", 60, grow=True),
)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.events
    shown = worth_showing(panel.rows)
    # One tag on every line tells nothing.
    tags = len({row.tag for row in shown}) > 1
    rows = tuple(_row(row, tags=tags) for row in reversed(shown))
    columns = tuple(column for column in _COLUMNS if tags or column.id != "tag")
    events = Table("events", columns, rows, "at", "Events, newest first", "nothing has happened in this session yet")
    return Detail("Events", states.head_lines(panel, (), width), (events,))


def _row(row: EventRow, *, tags: bool) -> Row:
    style = style_of(row.severity)
    return Row(
        f"{row.seq} {row.at}",
        (
            Cell(sign_of(row.kind, row.severity), row.kind, style),
            Cell(moment_of(row.at), row.at),
            Cell(name_of(row.kind), row.kind),
            *((Cell(name_of(row.tag), row.tag),) if tags else ()),
            Cell(clean(row.text[:400]), row.text[:400], style),
        ),
        (said(clean(row.text)),),
    )
