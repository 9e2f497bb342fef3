"""Events: what happened in this session, newest last; findings stand on top of them while they last."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import EventRow, Finding, Frame
from dba_console.panels import states
from dba_console.panels.cells import Cell, Column, Detail, Line, Row, Table, clean
from dba_console.panels.happenings import event_line, finding_line, sign_of, style_of, worth_showing
from dba_console.panels.phrases import name_of, said
from dba_console.panels.times import clock_of, moment_of


def compact(frame: Frame, width: int, height: int, history: History) -> list[Line]:
    """The last events that fit, in the order they happened."""
    panel = frame.events
    lines = [event_line(row) for row in worth_showing(panel.rows)[-height:]] if height > 0 else []
    if not lines and panel.status == "ok":
        lines = [said("nothing has happened in this session yet", "dim")]
    return states.body(panel, bool(lines), lines, width, height)


def findings(frame: Frame, width: int, height: int) -> list[Line]:
    """The findings that last, in the order they were raised; the most severe ones where not all fit."""
    ranks = {"critical": 0, "warning": 1}
    kept = sorted(frame.findings, key=lambda one: ranks.get(one.severity, 2))[: max(0, height)]
    return [finding_line(one, width) for one in sorted(kept, key=lambda one: one.since or "")]


_COLUMNS = (
    Column("sign", "", 1),
    Column("at", "time", 19, help="Local time", sort_key="T", descending=True),
    Column("kind", "kind", 18, sort_key="K", spare=2),
    Column("tag", "tag", 12, sort_key="G", spare=3),
    Column("text", "what happened", 60, grow=True),
)
_FINDING_COLUMNS = (
    Column("severity", "severity", 8, sort_key="S"),
    Column("since", "since", 8, sort_key="T"),
    Column("subject", "subject", 16, sort_key="J"),
    Column("text", "finding", 60, grow=True),
    Column("runbook", "runbook", 24),
)


def detail(frame: Frame, width: int, history: History) -> Detail:
    panel = frame.events
    shown = worth_showing(panel.rows)
    # One tag on every line tells nothing.
    tags = len({row.tag for row in shown}) > 1
    rows = tuple(_row(row, tags=tags) for row in reversed(shown))
    columns = tuple(column for column in _COLUMNS if tags or column.id != "tag")
    events = Table("events", columns, rows, "at", "Events, newest first", "nothing has happened in this session yet")
    if not frame.findings:
        return Detail("Events", states.head_lines(panel, (), width), (events,))
    found = Table("findings", _FINDING_COLUMNS, tuple(_finding(one) for one in frame.findings), None, "Findings")
    return Detail("Events", states.head_lines(panel, (), width), (found, events))


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


def _finding(one: Finding) -> Row:
    evidence = tuple(
        said(f"{clean(str(name)[:80])} = {clean(str(value)[:200])}") for name, value in one.evidence.items()
    )
    return Row(
        one.id,
        (
            Cell(name_of(one.severity), one.severity, style_of(one.severity)),
            Cell(clock_of(one.since), one.since),
            Cell(name_of(one.subject), one.subject),
            Cell(clean(one.text[:400]), one.text[:400]),
            Cell(name_of(one.runbook) if one.runbook else "", one.runbook),
        ),
        evidence,
    )
