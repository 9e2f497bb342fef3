"""The overview: everything that decides in the first minute, on one screen of whatever size there is.

80x24 is designed first; wider and taller screens show more of the same, narrower and shorter ones the most important
line of each panel. Header and footer belong to the screen: these are the lines between them.
"""

from __future__ import annotations

from dataclasses import replace

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels.bands import Band, View, content, stack, wanted_height
from dba_console.panels.cells import Line, Span, Style, fit_line
from dba_console.panels.findings import calls, lines_of
from dba_console.panels.grid import Box, draw
from dba_console.panels.phrases import wrap
from dba_console.panels.signs import ascii_line

WIDE, BROAD, NARROW, SHORT = 150, 118, 60, 15

_STANDARD = (
    Band(("connections", "io"), 3, 3, 6, 0),
    Band(("memory", "safety"), 3, 3, 6, 1),
    Band(("replication", "disks"), 2, 3, 5, 5),
    Band(("progress",), 1, 2, 6, 3),
    Band(("locks",), 1, 2, 8, 4),
    Band(("happenings",), 2, 3, 12, 2),
    Band(("charts",), 6, 12, 17, 7),
    Band(("sessions",), 3, 6, 40, 6),
)
_BROAD = (
    Band(("connections", "io", "replication"), 3, 3, 6, 0),
    Band(("memory", "safety", "disks"), 3, 3, 6, 1),
    Band(("charts",), 5, 12, 17, 5),
    Band(("progress",), 1, 2, 6, 3),
    Band(("locks",), 1, 2, 8, 4),
    Band(("happenings",), 2, 3, 12, 2),
    Band(("sessions",), 3, 5, 40, 6),
)
_WIDE_LEFT = (
    Band(("connections", "io"), 3, 4, 8, 0),
    Band(("memory", "safety"), 3, 5, 6, 1),
    Band(("replication", "disks"), 2, 4, 8, 2),
    Band(("progress",), 1, 4, 8, 3),
    Band(("locks",), 1, 4, 12, 4),
)
_WIDE_BELOW = (
    Band(("happenings",), 2, 4, 12, 0),
    Band(("sessions",), 3, 8, 60, 1),
)
_SENTENCES = 6
"""Lines of findings that have room before other panels look good."""
_BELOW_LEAST = 12
"""Rows for what stands below, titles counted in."""
_CHARTS = (Band(("charts",), 5, 17, 60, 0),)
_BRIEF = (
    ("conn", "connections"), ("io", "io"), ("mem", "memory"), ("disk", "disks"), ("lock", "locks"),
    ("repl", "replication"), ("safe", "safety"), ("dump", "progress"),
)  # fmt: skip

STOPPED = "the postmaster is stopped (SIGSTOP): nobody can connect until it gets SIGCONT"


def overview(frame: Frame, history: ChartHistory, width: int, height: int, *, ascii: bool = False) -> list[Line]:
    """The body of the overview: at most `height` lines of at most `width` cells."""
    if width < 1 or height < 1:
        return []
    view = View(frame, history)
    doubts = alerts(frame, width - 1)[: max(1, height // 4)]
    room = height - len(doubts)
    lines = [fit_line(one, width) for one in doubts]
    if width < NARROW or height < SHORT:
        lines += [fit_line(one, width) for one in _brief(view, width, room)]
    else:
        boxes = _wide(view, width, room - 1) if width >= WIDE and room >= 24 else _stacked(view, width, room - 1)
        boxes.append(Box(0, room - 1, width, 1, ()))
        lines += draw(boxes, width, room)
    return [ascii_line(one) for one in lines[:height]] if ascii else lines[:height]


def _stacked(view: View, width: int, height: int) -> list[Box]:
    return stack(view, _called(view, _BROAD if width >= BROAD else _STANDARD, width), 0, 0, width, height)


def _wide(view: View, width: int, height: int) -> list[Box]:
    """What is on the left at 80 columns, the ten minutes beside it, events and sessions below."""
    left = max(80, width // 2)
    bands_below = _called(view, _WIDE_BELOW, width)
    below = wanted_height(view, bands_below, width)
    # Sessions take what is left: whoever waits, and for what, is told above them.
    enough = min(wanted_height(view, _WIDE_LEFT, left, good=True), height - _BELOW_LEAST)
    top = max(20, enough, min(30, height - below, height * 2 // 3))
    boxes = stack(view, _WIDE_LEFT, 0, 0, left, top)
    boxes += stack(view, _CHARTS, left + 1, 0, width - left - 1, top)
    return boxes + stack(view, bands_below, 0, top, width, height - top)


def _called(view: View, bands: tuple[Band, ...], width: int) -> tuple[Band, ...]:
    """The bands; while findings call, their sentences have room before anything else looks good."""
    needed = len(lines_of(calls(view.frame.findings), width - 1, _SENTENCES))
    if needed < 2:
        return bands
    return tuple(
        replace(band, least=min(3, needed), good=needed + 1, rank=0) if band.names == ("happenings",) else band
        for band in bands
    )


def _brief(view: View, width: int, height: int) -> list[Line]:
    """One line for each panel, most important first; what room is left goes to what happened last."""
    lines: list[Line] = []
    for label, name in _BRIEF[:height]:
        first = content(name, view, width - 5, 1)
        lines.append((Span(f"{label:<5}", "title"), *(first[0] if first else (Span("?", "stale"),))))
    return lines + content("happenings", view, width, height - len(lines)) if len(lines) < height else lines


def alerts(frame: Frame, width: int) -> list[Line]:
    """What puts everything below in doubt: no connection, a recording that fails."""
    lines: list[Line] = []
    silent = frame.sessions.status == "timeout"
    if frame.target.note and (silent or frame.target.state != "connected"):
        lines += _alert(frame.target.note, "crit", width)
    if frame.target.postmaster_stopped:
        lines += _alert(STOPPED, "crit", width)
    if frame.own.recording in ("lagging", "failed") and frame.own.recording_note:
        lines += _alert(frame.own.recording_note, "warn", width)
    return lines


def _alert(sentence: str, style: Style, width: int) -> list[Line]:
    return [
        (Span((" ! " if index == 0 else "   ") + text, style),) for index, text in enumerate(wrap(sentence, width - 3))
    ]
