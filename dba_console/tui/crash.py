"""What happens when the program itself fails: a private report, and three lines for the operator.

Upheld here: no local variable and no secret is ever printed. Textual's own report shows locals; this takes its place.
"""

from __future__ import annotations

import os
import platform
import traceback
from datetime import UTC, datetime
from pathlib import Path

from dba_console import __version__, paths
from dba_console.redact import redact


def report_text(error: BaseException) -> str:
    """The report: versions and the traceback, without locals, redacted."""
    trace = "".join(traceback.format_exception(error, limit=-30))
    head = f"dba-console {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    return redact(f"{head}\nTERM={os.environ.get('TERM', '')}\n\n{trace}")


def write_report(text: str, directory: Path | None = None) -> Path | None:
    """Write it 0600 into the state directory. None where that cannot be done: a full disk must not hide the cause."""
    try:
        folder = paths.private_dir(paths.state_dir() if directory is None else directory)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path = folder / f"crash-{stamp}-{os.getpid()}.txt"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except Exception:
        return None
    return path


def farewell(error: BaseException, path: Path | None) -> str:
    """Three lines: what failed, what goes on, where the report is."""
    first = redact(str(error)).splitlines()
    reason = f"{type(error).__name__}: {first[0]}" if first and first[0] else type(error).__name__
    where = f"report (no secrets, please attach it): {path}" if path else "no report could be written"
    return f"dba-console: the screen failed: {reason}\nthe agent goes on recording; start the console again\n{where}"
