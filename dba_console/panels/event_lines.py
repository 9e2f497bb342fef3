"""Events and findings as lines, and as signs on a time axis. The same sign stands in both places."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.frames.model import EventRow, Finding, Frame
from dba_console.panels.phrases import first_fitting
from dba_console.panels.text_elements import Line, Span, Style, clean, fit_line, line_width
from dba_console.panels.time_formats import local_time_of_day, parse_rfc3339

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
_HIDDEN_KINDS = frozenset({"heartbeat"})


def event_sign(kind: str, severity: str) -> str:
    """`!` for what is serious, a letter for what has one, else `i`.

    >>> event_sign("mark", "info"), event_sign("server.lost", "warning"), event_sign("lane.stuck", "warning")
    ('m', 'x', '!')
    """
    sign = _KIND_SIGNS.get(kind)
    return sign if sign is not None else "!" if severity in _SEVERITY_STYLES else "i"


def severity_style(severity: str) -> Style:
    return _SEVERITY_STYLES.get(severity, "")


def axis_marks(frame: Frame) -> Iterator[tuple[int, str]]:
    """Time and sign of everything worth a place on the time axis, findings last so that they stay on top."""
    for row in frame.events.rows:
        at = parse_rfc3339(row.at)
        if at is not None and row.kind not in _HIDDEN_KINDS:
            yield at, event_sign(row.kind, row.severity)
    for finding in frame.findings:
        at = parse_rfc3339(finding.since)
        if at is not None:
            yield at, "!"


def event_line(row: EventRow) -> Line:
    style = severity_style(row.severity)
    return (
        Span(event_sign(row.kind, row.severity) + " ", style),
        Span(local_time_of_day(row.at) + "  ", "dim"),
        Span(clean(row.text[:500]), style),
    )


def finding_sign(finding: Finding) -> str:
    """`!` for what speaks and is serious, `a` for what somebody acknowledged, `z` silenced, else `i`."""
    if finding.state != "open":
        return "a" if finding.state == "acknowledged" else "z"
    return "!" if finding.severity in _SEVERITY_STYLES else "i"


def finding_line(finding: Finding, cells: int) -> Line:
    """`! 14:55:02  sentence  → runbook`; the runbook shrinks to its key where there is no room for its name."""
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
    """The events without the ones that only say the session lives."""
    return [row for row in rows if row.kind not in _HIDDEN_KINDS]
