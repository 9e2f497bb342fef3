"""The first line of every screen: which server, what moment, how far it can be trusted.

What is wrong (no connection, old data, a stuck lane) is never what gets cut; what is nice to know is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dba_console.frames.model import Frame
from dba_console.panels.cells import Line, Span, fit_line, line_width
from dba_console.panels.phrases import BETWEEN, join, name_of
from dba_console.panels.times import clock, moment, stopwatch
from dba_console.units import human_duration

USUAL_PORT = 5432
"""Said of a server without a cluster_name where it has another one: a host may have several servers."""

Mode = Literal["live", "paused", "replay", "text"]


@dataclass(frozen=True, slots=True)
class Showing:
    """How the frame comes to be on the screen; the screen fills it in, the frame knows nothing of it."""

    mode: Mode = "text"
    behind_s: float = 0.0
    """Paused: how far the moment shown is behind now."""
    speed: float = 1.0
    """Replay: 4.0 is four times as fast; 0 stands still."""
    recording_s: float | None = None
    """How long the session has been recorded; None where that is not known."""
    age_s: float | None = None
    """Age of the newest sample by the console's own clock."""
    interval_s: float = 1.0
    called: str | None = None
    """What the operator calls the target; a cluster may have another name."""
    run: str = ""
    """What is to be said of a run of a runbook."""
    run_wants: bool = False
    """It waits for somebody at this screen."""


class _Piece(NamedTuple):
    """A piece of the line. `rank` 0 is never left out; the highest goes first when there is no room."""

    rank: int
    line: Line


def header(frame: Frame, showing: Showing, width: int) -> Line:
    """The line in exactly `width` cells."""
    left, right = _left(frame, showing), [*_warnings(frame, showing), *_right(frame, showing)]
    start, end = _joined(left), _joined(right, Span("  "))
    while line_width(start) + line_width(end) + 2 > width and (worst := max(p.rank for p in left + right)) > 0:
        left = [piece for piece in left if piece.rank < worst]
        right = [piece for piece in right if piece.rank < worst]
        start, end = _joined(left), _joined(right, Span("  "))
    gap = max(2, width - line_width(start) - line_width(end))
    return fit_line((*start, Span(" " * gap), *end) if end else start, width)


def _joined(pieces: Sequence[_Piece], between: Span = BETWEEN) -> Line:
    return join([piece.line for piece in pieces], between)


def _left(frame: Frame, showing: Showing) -> list[_Piece]:
    target = frame.target
    role = "" if target.role == "unknown" else f" {name_of(target.role, 10)}"
    title, called, host = target.name or showing.called, showing.called, target.host
    where = f" on {name_of(host, 20)}" if host and host != title else ""
    port = f":{target.port}" if target.port not in (None, USUAL_PORT) and target.name == host else ""
    pieces = [_Piece(0, (Span(name_of(title, 32) + port, "title"), Span(role + where)))]
    if target.name and called and called != target.name:
        # The host stands there already, and is not what is cut.
        pieces.append(_Piece(5, (Span(name_of(called.removesuffix(f"@{host}"), 24)),)))
    if target.version:
        pieces.append(_Piece(6, (Span(f"PG {name_of(target.version, 16)}"),)))
    if target.uptime_s is not None:
        pieces.append(_Piece(8, (Span(f"up {human_duration(target.uptime_s)}"),)))
    pieces += _reach(frame)
    if showing.mode == "text":
        pieces.append(_Piece(4, (Span(moment(frame.at_us)),)))
    elif showing.mode != "replay":
        pieces.append(_Piece(4, (Span(clock(frame.at_us)),)))
    return pieces


def _reach(frame: Frame) -> list[_Piece]:
    """What stands between: a pooler, and a host that is not this one, whose panels are empty then."""
    pieces = []
    if frame.target.through:
        pieces.append(_Piece(5, (Span(f"via {name_of(frame.target.through, 32)}", "warn"),)))
    if frame.target.server_version is not None and frame.target.local is not True:
        pieces.append(_Piece(4, (Span("SQL only", "warn"),)))
    return pieces


def _warnings(frame: Frame, showing: Showing) -> list[_Piece]:
    pieces = []
    if frame.target.state == "blind":
        pieces.append(_Piece(0, (Span("BLIND: no connection", "crit"),)))
    elif frame.target.state != "connected":
        pieces.append(_Piece(0, (Span("NO CONNECTION", "crit"),)))
    elif frame.connections.status == "timeout":
        age_s = frame.connections.age_s
        since = "" if age_s is None else f" for {human_duration(age_s)}"
        pieces.append(_Piece(0, (Span(f"NO ANSWER{since}", "crit"),)))
    if _is_old(showing):
        pieces.append(_Piece(0, (Span(f"data {human_duration(showing.age_s)} old", "crit"),)))
    if showing.run:
        pieces.append(_Piece(0, (Span(showing.run, "warn"),)) if showing.run_wants else _Piece(3, (Span(showing.run),)))
    if frame.own.stuck_lanes:
        word = "lane" if frame.own.stuck_lanes == 1 else "lanes"
        pieces.append(_Piece(3, (Span(f"{frame.own.stuck_lanes} {word} stuck", "warn"),)))
    if frame.own.dropped:
        pieces.append(_Piece(2, (Span(f"{frame.own.dropped} dropped", "warn"),)))
    return pieces


def _is_old(showing: Showing) -> bool:
    """True where nothing new has come for more than two ticks."""
    return showing.mode == "live" and showing.age_s is not None and showing.age_s > 2 * showing.interval_s


def _right(frame: Frame, showing: Showing) -> list[_Piece]:
    pieces: list[_Piece] = []
    if showing.mode in ("live", "paused"):
        pieces.append(_Piece(1 if frame.own.recording == "failed" else 5, _recording(frame, showing)))
        pieces.append(_Piece(9, (Span(_rate(showing.interval_s), "dim"),)))
    if showing.mode == "live":
        # What comes no more is not live, whatever the screen waits for.
        pieces.append(_Piece(0, (Span("NOT LIVE", "crit"),)) if _is_old(showing) else _Piece(7, (Span("LIVE", "ok"),)))
    elif showing.mode == "paused":
        pieces.append(_Piece(0, (Span(f"PAUSED {stopwatch(-abs(showing.behind_s))}", "warn"),)))
    elif showing.mode == "replay":
        speed = "PAUSED" if showing.speed == 0 else f"×{showing.speed:g}"
        pieces.append(_Piece(0, (Span(f"REPLAY {moment(frame.at_us)} {speed}", "changed"),)))
    return pieces


def _recording(frame: Frame, showing: Showing) -> Line:
    state = frame.own.recording
    length = "" if showing.recording_s is None else f" {stopwatch(showing.recording_s)}"
    if state == "ok":
        return (Span("● ", "ok"), Span(f"rec{length}"))
    if state == "off":
        return (Span("not recording", "dim"),)
    if state is None:
        return (Span("rec ?", "stale"),)
    return (Span(f"rec {name_of(state, 12)}{length}", "crit" if state == "failed" else "warn"),)


def _rate(interval_s: float) -> str:
    return f"{1 / interval_s:g} Hz" if 0 < interval_s <= 1 else f"every {interval_s:g}s"
