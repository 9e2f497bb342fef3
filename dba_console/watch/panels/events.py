"""Events of this session, newest last, as a panel, and as lines and symbols for other panels."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.frames.rows import EventRow
from dba_console.watch.panels import phrases
from dba_console.watch.panels.phrases import first_fitting, name_of, text_line
from dba_console.watch.panels.text_elements import (
    Cell,
    Detail,
    Line,
    Span,
    Style,
    Table,
    TableColumn,
    TableRow,
    clean,
    fit_line,
    line_width,
)
from dba_console.watch.panels.time_formats import local_date_and_time, local_time_of_day, parse_rfc3339

# Events and findings as lines, and as symbols on a time axis, the same symbol in both.

_KIND_SIGNS = {
    "mark": "m",
    "note": "n",
    "server.lost": "x",
    "server.blind": "x",
    "server.connected": "+",
    "server.changed": "+",
    "gap": "g",
    "clock.jump": "g",
    "session.start": "<",
    "session.end": ">",
}
_SEVERITY_STYLES: dict[str, Style] = {"warning": "warn", "critical": "crit"}
_SEVERITY_SIGNS = {"warning": "!", "critical": "‼"}
_HIDDEN_KINDS = frozenset({"heartbeat"})


def event_sign(kind: str, severity: str) -> str:
    """Return the letter of a kind that has one, else the sign of the severity.

    >>> event_sign("mark", "info"), event_sign("server.lost", "warning"), event_sign("lane.stuck", "warning")
    ('m', 'x', '!')
    """
    return _KIND_SIGNS.get(kind) or severity_sign(severity)


def severity_sign(severity: str) -> str:
    """Return `‼` for critical, `!` for a warning, else `i`: readable without colour."""
    return _SEVERITY_SIGNS.get(severity, "i")


def severity_style(severity: str) -> Style:
    return _SEVERITY_STYLES.get(severity, "")


def axis_marks(frame: Frame) -> Iterator[tuple[int, str]]:
    """Yield time and symbol of everything to mark on the time axis, findings last so that they stay on top."""
    for row in frame.events.rows:
        at = parse_rfc3339(row.at)
        if at is not None and row.kind not in _HIDDEN_KINDS:
            yield at, event_sign(row.kind, row.severity)
    for finding in frame.findings:
        at = parse_rfc3339(finding.since)
        if at is not None:
            yield at, severity_sign(finding.severity)


def event_line(row: EventRow) -> Line:
    style = severity_style(row.severity)
    return (
        Span(event_sign(row.kind, row.severity) + " ", style),
        Span(local_time_of_day(row.at) + "  ", "dim"),
        Span(clean(row.text[:500]), style),
    )


def finding_sign(finding: Finding) -> str:
    """Return the sign of its severity, `a` for an acknowledged finding, `z` for a silenced one."""
    if finding.state != "open":
        return "a" if finding.state == "acknowledged" else "z"
    return severity_sign(finding.severity)


def finding_line(finding: Finding, cells: int) -> Line:
    """`‼ 14:55:02  sentence  → runbook`; the runbook shrinks to its key if its name does not fit."""
    style = severity_style(finding.severity)
    spans = [
        Span(finding_sign(finding) + " ", style),
        Span(local_time_of_day(finding.since) + "  ", "dim"),
        Span(clean(finding.text[:500]), style),
    ]
    words = tuple(spans)
    if not finding.runbook:
        return words
    named = (*words, Span(f"  → {clean(finding.runbook[:60])}", "key"))
    cut_words = words if line_width(words) <= cells - 5 else fit_line(words, max(0, cells - 5))
    return first_fitting(cells, named, (*cut_words, Span("  → r", "key")))


def visible_events(rows: list[EventRow]) -> list[EventRow]:
    """Return the events without those that only show that the session is running."""
    return [row for row in rows if row.kind not in _HIDDEN_KINDS]


def compact(
    frame: Frame, width: int, height: int, history: ChartHistory, shown_ids: Collection[str] = frozenset()
) -> list[Line]:
    """Return the last events that fit, in order of time; without those that raised a finding of `shown_ids`."""
    panel = frame.events
    rows = [row for row in visible_events(panel.rows) if row.finding is None or row.finding not in shown_ids]
    lines = [event_line(row) for row in rows[-height:]] if height > 0 else []
    if not lines and panel.status == "ok":
        lines = [text_line("no events in this session yet", "dim")]
    return phrases.body(panel, bool(lines), lines, width, height)


_COLUMNS = (
    TableColumn("sign", "", 1),
    TableColumn("at", "time", 19, help="Local time", descending=True),
    TableColumn("kind", "kind", 18, spare=2),
    TableColumn("tag", "tag", 12, spare=3),
    TableColumn("text", "event", 60, grow=True),
)


def detail(frame: Frame, width: int, history: ChartHistory) -> Detail:
    panel = frame.events
    shown = visible_events(panel.rows)
    # The same tag on every line carries no information.
    tags = len({row.tag for row in shown}) > 1
    rows = tuple(_event_row(row, tags=tags) for row in reversed(shown))
    columns = tuple(column for column in _COLUMNS if tags or column.id != "tag")
    events = Table("events", columns, rows, "at", "Events, newest first", "no events in this session yet")
    return Detail("Events", phrases.head_lines(panel, (), width), (events,))


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
        lambda: (text_line(clean(row.text)),),
    )
