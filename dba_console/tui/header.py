"""The header of the screen: the panels' header line, told how its frame comes to be shown."""

from __future__ import annotations

from dataclasses import replace

from dba_console.panels.cells import Line, Span, fit_line, line
from dba_console.panels.header import Showing, header
from dba_console.tui.feed import Session
from dba_console.tui.navigator import Navigator


def screen_header(navigator: Navigator, session: Session, width: int) -> Line:
    """The first line, in exactly `width` cells; before the first sample it names what is being opened."""
    frame = navigator.frame()
    run, wants = navigator.runs.sign(lost=navigator.link == "lost")
    if frame is None:
        return fit_line(line(Span(session.name, "title"), f"  {navigator.label}", Span(f"  {run}", "warn")), width)
    told = replace(showing(navigator, session), called=session.name, run=run, run_wants=wants)
    return header(frame, told, width)


def showing(navigator: Navigator, session: Session) -> Showing:
    """How the frame comes to be on the screen."""
    cursor, now_us = navigator.cursor, navigator.present.at_us
    # The newest sample may be older than an agent that has just begun to record.
    recording_s = (
        None if session.started_us is None or now_us is None else max(0.0, (now_us - session.started_us) / 1e6)
    )
    if cursor.live:
        return Showing("live", recording_s=recording_s, age_s=navigator.silent_s, interval_s=session.interval_s)
    if cursor.has_present and not cursor.playing:
        behind_s = 0.0 if now_us is None or cursor.at_us is None else (now_us - cursor.at_us) / 1e6
        return Showing("paused", behind_s, recording_s=recording_s, interval_s=session.interval_s)
    return Showing("replay", speed=cursor.speed if cursor.playing else 0, interval_s=session.interval_s)
