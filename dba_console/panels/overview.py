"""The overview: everything that decides in the first minute, on one screen of whatever size there is.

80x24 is designed first; wider and taller screens show more of the same, narrower and shorter ones the most important
line of each panel. Header and footer belong to the screen: these are the lines between them.
"""

from __future__ import annotations

from dataclasses import replace

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels.ascii_fallback import ascii_line
from dba_console.panels.boxes import Box, draw_boxes
from dba_console.panels.findings import list_lines, urgent_findings
from dba_console.panels.overview_layout import FrameWithHistory, LayoutRow, needed_height, panel_lines, stack_rows
from dba_console.panels.phrases import wrap_words
from dba_console.panels.text_elements import Line, Span, Style, fit_line

WIDE, BROAD, NARROW, SHORT = 150, 118, 60, 15

_STANDARD = (
    LayoutRow(("connections", "io"), 3, 3, 6, 0),
    LayoutRow(("memory", "safety"), 3, 3, 6, 1),
    LayoutRow(("replication", "disks"), 2, 3, 5, 5),
    LayoutRow(("progress",), 1, 2, 6, 3),
    LayoutRow(("locks",), 1, 2, 8, 4),
    LayoutRow(("happenings",), 2, 3, 12, 2),
    LayoutRow(("charts",), 6, 12, 17, 7),
    LayoutRow(("sessions",), 3, 6, 40, 6),
)
_BROAD = (
    LayoutRow(("connections", "io", "replication"), 3, 3, 6, 0),
    LayoutRow(("memory", "safety", "disks"), 3, 3, 6, 1),
    LayoutRow(("charts",), 5, 12, 17, 5),
    LayoutRow(("progress",), 1, 2, 6, 3),
    LayoutRow(("locks",), 1, 2, 8, 4),
    LayoutRow(("happenings",), 2, 3, 12, 2),
    LayoutRow(("sessions",), 3, 5, 40, 6),
)
_WIDE_LEFT = (
    LayoutRow(("connections", "io"), 3, 4, 8, 0),
    LayoutRow(("memory", "safety"), 3, 5, 6, 1),
    LayoutRow(("replication", "disks"), 2, 4, 8, 2),
    LayoutRow(("progress",), 1, 4, 8, 3),
    LayoutRow(("locks",), 1, 4, 12, 4),
)
_WIDE_BELOW = (
    LayoutRow(("happenings",), 2, 4, 12, 0),
    LayoutRow(("sessions",), 3, 8, 60, 1),
)
_FINDING_LINES = 6
"""Lines of findings that have room before other panels look good."""
_MIN_ROWS_BELOW = 12
"""Rows for what stands below, titles counted in."""
_CHARTS = (LayoutRow(("charts",), 5, 17, 60, 0),)
_BRIEF = (
    ("conn", "connections"), ("io", "io"), ("mem", "memory"), ("disk", "disks"), ("lock", "locks"),
    ("repl", "replication"), ("safe", "safety"), ("dump", "progress"),
)  # fmt: skip

POSTMASTER_STOPPED_TEXT = "the postmaster is stopped (SIGSTOP): nobody can connect until it gets SIGCONT"


def overview(frame: Frame, history: ChartHistory, width: int, height: int, *, ascii: bool = False) -> list[Line]:
    """The body of the overview: at most `height` lines of at most `width` cells."""
    if width < 1 or height < 1:
        return []
    view = FrameWithHistory(frame, history)
    alert_lines = alerts(frame, width - 1)[: max(1, height // 4)]
    room = height - len(alert_lines)
    lines = [fit_line(one, width) for one in alert_lines]
    if width < NARROW or height < SHORT:
        lines += [fit_line(one, width) for one in _brief_lines(view, width, room)]
    else:
        boxes = (
            _wide_boxes(view, width, room - 1)
            if width >= WIDE and room >= 24
            else _stacked_boxes(view, width, room - 1)
        )
        boxes.append(Box(0, room - 1, width, 1, ()))
        lines += draw_boxes(boxes, width, room)
    return [ascii_line(one) for one in lines[:height]] if ascii else lines[:height]


def _stacked_boxes(view: FrameWithHistory, width: int, height: int) -> list[Box]:
    return stack_rows(
        view, _with_room_for_findings(view, _BROAD if width >= BROAD else _STANDARD, width), 0, 0, width, height
    )


def _wide_boxes(view: FrameWithHistory, width: int, height: int) -> list[Box]:
    """What is on the left at 80 columns, the ten minutes beside it, events and sessions below."""
    left = max(80, width // 2)
    bands_below = _with_room_for_findings(view, _WIDE_BELOW, width)
    below = needed_height(view, bands_below, width)
    # Sessions take what is left: whoever waits, and for what, is told above them.
    enough = min(needed_height(view, _WIDE_LEFT, left, good=True), height - _MIN_ROWS_BELOW)
    top = max(20, enough, min(30, height - below, height * 2 // 3))
    boxes = stack_rows(view, _WIDE_LEFT, 0, 0, left, top)
    boxes += stack_rows(view, _CHARTS, left + 1, 0, width - left - 1, top)
    return boxes + stack_rows(view, bands_below, 0, top, width, height - top)


def _with_room_for_findings(view: FrameWithHistory, layout: tuple[LayoutRow, ...], width: int) -> tuple[LayoutRow, ...]:
    """The bands; while findings call, their sentences have room before anything else looks good."""
    needed = len(list_lines(urgent_findings(view.frame.findings), width - 1, _FINDING_LINES))
    if needed < 2:
        return layout
    return tuple(
        replace(band, min_rows=min(3, needed), good_rows=needed + 1, rank=0) if band.names == ("happenings",) else band
        for band in layout
    )


def _brief_lines(view: FrameWithHistory, width: int, height: int) -> list[Line]:
    """One line for each panel, most important first; what room is left goes to what happened last."""
    lines: list[Line] = []
    for label, name in _BRIEF[:height]:
        first = panel_lines(name, view, width - 5, 1)
        lines.append((Span(f"{label:<5}", "title"), *(first[0] if first else (Span("?", "stale"),))))
    return lines + panel_lines("happenings", view, width, height - len(lines)) if len(lines) < height else lines


def alerts(frame: Frame, width: int) -> list[Line]:
    """What puts everything below in doubt: no connection, a recording that fails."""
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
