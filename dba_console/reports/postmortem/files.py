"""Writes a postmortem: both files, or none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from dba_console.recording.recording import Recording
from dba_console.reports.documents import write_documents
from dba_console.reports.postmortem.gather import Asked, gather
from dba_console.reports.postmortem.render import HTML, MARKDOWN, render


def write_postmortem(
    recording: Recording, asked: Asked, directory: Path, *, others: Sequence[Recording] = (), overwrite: bool = False
) -> list[Path]:
    """Write the report into a directory, which is created (0700); return the files (0600). Raises ConsoleError."""
    rendered = render(gather(recording, asked, others), time.time_ns() // 1000)
    return write_documents(directory, {MARKDOWN: rendered.markdown, HTML: rendered.html}, overwrite=overwrite)
