"""The one place that writes to stderr: sentences and hints, and what is said of a command that failed by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dba_console.core.crash_report import summary, write_report
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact


def print_diagnostic(text: str) -> None:
    """One diagnostic on stderr. Never raises: a lost stderr must not hide the exit code."""
    try:
        print(redact(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def report_crash(error: BaseException, argv: Sequence[str]) -> str:
    """Write the report of a defect; the three lines that tell of it. Never raises."""
    try:
        report_line = f"its report, with secrets masked, is {write_report(error, argv)}"
    except (OSError, ConsoleError) as refused:
        report_line = f"its report could not be written: {(str(refused).splitlines() or [''])[0]}"
    return (
        f"error: dba-console itself failed ({summary(error, argv)})\n"
        f"{report_line}\n"
        "hint: this is a defect; what was recorded is kept; please send the report to the maintainers"
    )
