"""Write to stderr: diagnostics, and the report of a crash. No other module writes there."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dba_console.core.crash_report import summary, write_report
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean


def print_diagnostic(text: str) -> None:
    """Print one diagnostic on stderr, masked, without control characters: it may quote a file name or an answer of a
    foreign host. Never raises: a lost stderr must not hide the exit code."""
    try:
        text = "\n".join(clean(line) for line in redact(text).split("\n"))
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def show_progress(text: str) -> None:
    """Show a text on stderr that the next one replaces; nothing unless it is a terminal. Never raises."""
    try:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
    except (OSError, ValueError):
        pass


def report_crash(error: BaseException, argv: Sequence[str]) -> str:
    """Write the crash report and return the three lines that announce it. Never raises."""
    try:
        report_line = f"report, with secrets masked: {write_report(error, argv)}"
    except (OSError, ConsoleError) as refused:
        report_line = f"cannot write the report: {(str(refused).splitlines() or [''])[0]}"
    return (
        f"error: internal error in dba-console ({summary(error, argv)})\n"
        f"{report_line}\n"
        "hint: this is a bug; the recording is kept; please send the report to the maintainers"
    )
