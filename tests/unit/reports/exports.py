"""Exports for tests: what an exporter writes of a session, and the session that is shipped for practice."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import dba_console.demo.recordings
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import load_exporter, whole

PRACTICE = Path(dba_console.demo.recordings.__file__).parent / "reclaim-stall"
"""Recorded from a real server: 56 ticks, findings, waiting sessions."""


def exported(directory: Path, format: str, **options: Any) -> str:
    """What is written of a whole session."""
    return noted(directory, format, **options)[0]


def noted(directory: Path, format: str, **options: Any) -> tuple[str, list[str]]:
    """The same, with the notes about what was left out."""
    recording = Recording.open(directory)
    out, shares = io.BytesIO(), [0.0]
    try:
        notes = load_exporter(format)(whole(recording), out, shares.append, **options)
    finally:
        recording.close()
    assert all(0 <= share <= 1 for share in shares)
    return out.getvalue().decode(), list(notes or ())
