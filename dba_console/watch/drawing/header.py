"""The first line of every screen: which server, which time, and how reliable the data are.

What is wrong (no connection, old data, a read that hangs) is never cut; less important pieces are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dba_console.core.units import human_duration
from dba_console.watch.drawing.phrases import SEPARATOR, join, name_of
from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line_width
from dba_console.watch.drawing.time_formats import date_and_time, stopwatch, time_of_day
from dba_console.watch.frames.model import Frame

DEFAULT_PORT = 5432
"""Shown for a server without a cluster_name on another port: a host may have several servers."""

Mode = Literal["live", "paused", "replay", "text"]


@dataclass(frozen=True, slots=True)
class HeaderState:
    """How the frame is shown (live, paused, replayed); set by the screen, not part of the frame."""

    mode: Mode = "text"
    behind_s: float = 0.0
    """Paused: how far the moment shown is behind live."""
    speed: float = 1.0
    """Replay: 4.0 is four times as fast; 0 is paused."""
    recording_s: float | None = None
    """How long the session has been recorded; None if unknown."""
    age_s: float | None = None
    """Age of the newest sample by the console's own clock."""
    interval_s: float = 1.0
    target_label: str | None = None
    """The operator's name for the target; a cluster may have another name."""
    run_text: str = ""
    """Text about a run of a runbook."""
    run_needs_answer: bool = False
    """The run waits for an answer from this screen."""


class _Piece(NamedTuple):
    """A piece of the line. `rank` 0 is never left out; the highest is dropped first when space is short."""

    rank: int
    line: Line


def header(frame: Frame, header_state: HeaderState, width: int) -> Line:
    """Return the line in exactly `width` cells."""
    left, right = _left(frame, header_state), [*_warnings(frame, header_state), *_right(frame, header_state)]
    start, end = _join_pieces(left), _join_pieces(right, Span("  "))
    while line_width(start) + line_width(end) + 2 > width and (worst := max(p.rank for p in left + right)) > 0:
        left = [piece for piece in left if piece.rank < worst]
        right = [piece for piece in right if piece.rank < worst]
        start, end = _join_pieces(left), _join_pieces(right, Span("  "))
    gap = max(2, width - line_width(start) - line_width(end))
    return fit_line((*start, Span(" " * gap), *end) if end else start, width)


def _join_pieces(pieces: Sequence[_Piece], between: Span = SEPARATOR) -> Line:
    return join([piece.line for piece in pieces], between)


def _left(frame: Frame, header_state: HeaderState) -> list[_Piece]:
    target = frame.target
    role = "" if target.role == "unknown" else f" {name_of(target.role, 10)}"
    title, called, host = target.name or header_state.target_label, header_state.target_label, target.host
    where = f" on {name_of(host, 20)}" if host and host != title else ""
    port = f":{target.port}" if target.port not in (None, DEFAULT_PORT) and target.name == host else ""
    pieces = [_Piece(0, (Span(name_of(title, 32) + port, "title"), Span(role + where)))]
    if target.name and called and called != target.name:
        # The host is part of the title already, and is not what gets cut.
        pieces.append(_Piece(5, (Span(name_of(called.removesuffix(f"@{host}"), 24)),)))
    if target.version:
        pieces.append(_Piece(6, (Span(f"PG {name_of(target.version, 16)}"),)))
    if target.uptime_s is not None:
        pieces.append(_Piece(8, (Span(f"up {human_duration(target.uptime_s)}"),)))
    pieces += _connection_pieces(frame)
    if header_state.mode == "text":
        pieces.append(_Piece(4, (Span(date_and_time(frame.at_us)),)))
    elif header_state.mode != "replay":
        pieces.append(_Piece(4, (Span(time_of_day(frame.at_us)),)))
    return pieces


def _connection_pieces(frame: Frame) -> list[_Piece]:
    """Return what is between console and server: a pooler, or another host, whose host panels are empty then."""
    pieces = []
    if frame.target.through:
        pieces.append(_Piece(5, (Span(f"via {name_of(frame.target.through, 32)}", "warn"),)))
    if frame.target.server_version is not None and frame.target.local is not True:
        pieces.append(_Piece(4, (Span("SQL only", "warn"),)))
    return pieces


def _warnings(frame: Frame, header_state: HeaderState) -> list[_Piece]:
    pieces = []
    if frame.target.state == "blind":
        pieces.append(_Piece(0, (Span("BLIND: no connection", "crit"),)))
    elif frame.target.state != "connected":
        pieces.append(_Piece(0, (Span("NO CONNECTION", "crit"),)))
    elif frame.connections.status == "timeout":
        age_s = frame.connections.age_s
        since = "" if age_s is None else f" for {human_duration(age_s)}"
        pieces.append(_Piece(0, (Span(f"NO ANSWER{since}", "crit"),)))
    if _is_old(header_state):
        pieces.append(_Piece(0, (Span(f"data {human_duration(header_state.age_s)} old", "crit"),)))
    if header_state.run_text:
        pieces.append(
            _Piece(0, (Span(header_state.run_text, "warn"),))
            if header_state.run_needs_answer
            else _Piece(3, (Span(header_state.run_text),))
        )
    if frame.own.stuck_lanes:
        words = "read hangs" if frame.own.stuck_lanes == 1 else "reads hang"
        pieces.append(_Piece(3, (Span(f"{frame.own.stuck_lanes} {words}", "warn"),)))
    if frame.own.dropped:
        pieces.append(_Piece(2, (Span(f"{frame.own.dropped} dropped", "warn"),)))
    return pieces


def _is_old(header_state: HeaderState) -> bool:
    """True if nothing new arrived for more than two ticks."""
    return (
        header_state.mode == "live"
        and header_state.age_s is not None
        and header_state.age_s > 2 * header_state.interval_s
    )


def _right(frame: Frame, header_state: HeaderState) -> list[_Piece]:
    pieces: list[_Piece] = []
    if header_state.mode in ("live", "paused"):
        pieces.append(_Piece(1 if frame.own.recording == "failed" else 5, _recording(frame, header_state)))
        pieces.append(_Piece(9, (Span(_interval_text(header_state.interval_s), "dim"),)))
    if header_state.mode == "live":
        # Without new data the screen is not live.
        pieces.append(
            _Piece(0, (Span("NOT LIVE", "crit"),)) if _is_old(header_state) else _Piece(7, (Span("LIVE", "ok"),))
        )
    elif header_state.mode == "paused":
        pieces.append(_Piece(0, (Span(f"PAUSED {stopwatch(-abs(header_state.behind_s))}", "warn"),)))
    elif header_state.mode == "replay":
        speed = "PAUSED" if header_state.speed == 0 else f"×{header_state.speed:g}"
        pieces.append(_Piece(0, (Span(f"REPLAY {date_and_time(frame.at_us)} {speed}", "changed"),)))
    return pieces


def _recording(frame: Frame, header_state: HeaderState) -> Line:
    state = frame.own.recording
    length = "" if header_state.recording_s is None else f" {stopwatch(header_state.recording_s)}"
    if state == "ok":
        return (Span("● ", "ok"), Span(f"rec{length}"))
    if state == "off":
        return (Span("not recording", "dim"),)
    if state is None:
        return (Span("rec ?", "stale"),)
    return (Span(f"rec {name_of(state, 12)}{length}", "crit" if state == "failed" else "warn"),)


def _interval_text(interval_s: float) -> str:
    return f"{1 / interval_s:g} Hz" if 0 < interval_s <= 1 else f"every {interval_s:g}s"
