"""The evidence of one finding: its sentence, its numbers, and their course around the moment it began."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.frames.model import Finding, Frame
from dba_console.panels import charts
from dba_console.panels.cells import Line, Span, fit, fit_line
from dba_console.panels.chart_rows import Chart, draw
from dba_console.panels.findings import full
from dba_console.panels.happenings import marks
from dba_console.panels.quantities import words_of, writer
from dba_console.panels.times import clock, from_rfc3339
from dba_console.panels.wrapping import wrap_lines

BEFORE_US, AFTER_US = 180_000_000, 420_000_000
"""Charted at most: three minutes before it began, and seven after."""
LEAST_US = 60_000_000
_TALLEST = 5
_AXIS = 2
"""Lines of the time axis: signs, clock."""


def evidence(frame: Frame, one: Finding, history: History, width: int, height: int) -> list[Line]:
    """The whole screen of a finding in at most `height` lines; words first, charts in the room they leave."""
    words = wrap_lines(tuple(full(one, frame.at_us)), width - 1)
    words = [(Span(" "), *line) for line in words]
    room = height - len(words) - 1
    if not one.series or room < _AXIS + len(one.series[:1]):
        return [fit_line(line, width) for line in words[:height]]
    axis_us = window(from_rfc3339(one.since) or frame.at_us, frame.at_us, history)
    lines = [*words, _rule(axis_us, width), *_charts(frame, one, history, axis_us, width, room)]
    return [fit_line(line, width) for line in lines[:height]]


def window(since_us: int, now_us: int, history: History) -> tuple[int, int]:
    """From when to when it is charted: around its beginning, or the last minutes where that was too long ago."""
    oldest = _oldest(history)
    if oldest is not None and since_us < oldest - BEFORE_US:
        since_us = oldest  # it began before anything known: what is known is shown
    start = since_us - BEFORE_US if oldest is None else max(since_us - BEFORE_US, min(oldest, since_us))
    end = min(now_us, since_us + AFTER_US)
    return min(start, end - LEAST_US), end


def _oldest(history: History) -> int | None:
    times = [points[0][0] for name in ("connections.used", "io.iowait_pct") if (points := history.series(name))]
    return min(times, default=None)


def _rule(axis_us: tuple[int, int], width: int) -> Line:
    words = f"─ around its start, {clock(axis_us[0])} to {clock(axis_us[1])} "
    return (Span(words + "─" * max(0, width - len(words)), "dim"),)


def _charts(
    frame: Frame, one: Finding, history: History, axis_us: tuple[int, int], width: int, room: int
) -> list[Line]:
    names = one.series[: max(1, (room - _AXIS) // 1)]
    gutter = 30 if width >= 100 else 24
    axis = charts.Axis(*axis_us, width - gutter)
    rows, extra = divmod(room - _AXIS, len(names))
    lines: list[Line] = []
    for index, name in enumerate(names):
        lines += draw(_chart(name, history, axis_us[1]), axis, gutter, max(1, min(_TALLEST, rows + (index < extra))))
    signs = [*marks(frame), *_began(one)]
    lines.append((Span(fit(" events", gutter - 1) + "│", "dim"), Span(charts.sign_line(signs, axis), "changed")))
    lines.append((Span(fit("", gutter - 1) + "└", "dim"), Span(charts.clock_line(axis), "dim")))
    return lines


def _began(one: Finding) -> list[tuple[int, str]]:
    since_us = from_rfc3339(one.since)
    return [] if since_us is None else [(since_us, "!")]


def _chart(name: str, history: History, end_us: int) -> Chart:
    ending, write = writer(name)
    points = [point for point in history.series(name) if point[0] <= end_us]
    level = ending == "_bytes"
    span = 0.02 * max((value for _, value in points), default=0.0) if level else 0.0
    top = {"_pct": 10.0, "avg10": 10.0, "_bytes_per_s": float(1 << 20)}.get(ending, 0.0)
    return Chart(words_of(_short(name)), points, write, floor=not level, top=top, span=max(span, 1.0 if level else 0.0))


def _short(name: str) -> str:
    """What a series is about: `cached_bytes` of `memory.cached_bytes`, `/pg used_bytes` of `mount:/pg.used_bytes`."""
    kind, colon, rest = name.partition(":")
    if colon:
        subject, _, field = rest.rpartition(".")
        return f"{subject or kind} {field}"
    return name.rpartition(".")[2]
