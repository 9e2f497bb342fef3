"""The recording as the screen asks it, and the contract's way of naming a time in it."""

from __future__ import annotations

from pathlib import Path

from dba_console.tui.recording_reader import RecordingSource


def open_recording(directory: Path) -> RecordingSource:
    """The recording in `directory`, live or finished. Raises SessionError saying what is wrong with it."""
    from dba_console.session.recording import Recording  # SQLite is loaded when the past is first asked for

    return Recording.open(directory)


def resolve_time(source: RecordingSource, text: str, now_us: int | None) -> int:
    """The wall time that `text` (a TIME of the contract) names in the recording. Raises UsageError."""
    from dba_console.session.time_argument import parse_when

    events = source.events() if text.startswith(("finding:", "mark:")) else ()
    last_us = source.last_us if now_us is None else now_us
    return parse_when(text, first_us=source.first_us or 0, last_us=last_us or 0, events=events)
