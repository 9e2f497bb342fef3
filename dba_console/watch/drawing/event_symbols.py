"""Events and findings as symbols on a time axis and in lines: the same symbol in both."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.watch.drawing.phrases import first_fitting
from dba_console.watch.drawing.text_elements import (
    Line,
    Span,
    Style,
    clean,
    fit_line,
    line_width,
)
from dba_console.watch.drawing.time_formats import local_time_of_day, parse_rfc3339
from dba_console.watch.frames.model import Finding, Frame

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
HIDDEN_KINDS = frozenset({"heartbeat"})
"""Events that only show that the session is running."""


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
        if at is not None and row.kind not in HIDDEN_KINDS:
            yield at, event_sign(row.kind, row.severity)
    for finding in frame.findings:
        at = parse_rfc3339(finding.since)
        if at is not None:
            yield at, severity_sign(finding.severity)


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
