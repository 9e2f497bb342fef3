"""The header of the screen: the panels' header line, told how its frame comes to be shown."""

from __future__ import annotations

from dataclasses import replace

from dba_console.panels.header import HeaderState, header
from dba_console.panels.text_elements import Line, Span, fit_line, line
from dba_console.tui.feed import Session
from dba_console.tui.time_travel import TimeNavigator


def screen_header(navigator: TimeNavigator, session: Session, width: int) -> Line:
    """The first line, in exactly `width` cells; before the first sample it names what is being opened."""
    frame = navigator.frame()
    run, needs_answer = navigator.runs.header_status(agent_lost=navigator.connection_state == "lost")
    if frame is None:
        return fit_line(line(Span(session.name, "title"), f"  {navigator.label}", Span(f"  {run}", "warn")), width)
    header_state = replace(
        showing(navigator, session), target_label=session.name, run_text=run, run_needs_answer=needs_answer
    )
    return header(frame, header_state, width)


def showing(navigator: TimeNavigator, session: Session) -> HeaderState:
    """How the frame comes to be on the screen."""
    cursor, now_us = navigator.cursor, navigator.live_state.at_us
    # The newest sample may be older than an agent that has just begun to record.
    recording_s = (
        None if session.started_us is None or now_us is None else max(0.0, (now_us - session.started_us) / 1e6)
    )
    if cursor.live:
        return HeaderState("live", recording_s=recording_s, age_s=navigator.silent_s, interval_s=session.interval_s)
    if cursor.can_go_live and not cursor.playing:
        behind_s = 0.0 if now_us is None or cursor.at_us is None else (now_us - cursor.at_us) / 1e6
        return HeaderState("paused", behind_s, recording_s=recording_s, interval_s=session.interval_s)
    return HeaderState("replay", speed=cursor.speed if cursor.playing else 0, interval_s=session.interval_s)
