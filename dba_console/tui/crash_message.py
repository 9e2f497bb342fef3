"""What the operator is told when the screen itself failed: three lines on a terminal that is whole again."""

from __future__ import annotations

import sys
from pathlib import Path

from dba_console.crash_report import summary, write_report


def crash_message(error: BaseException) -> str:
    """Write the report of the defect; what failed, what goes on, where the report is. Never raises."""
    path = _write_report(error)
    where = f"report (no secrets, please attach it): {path}" if path else "no report could be written"
    reason = summary(error, sys.argv)
    return f"dba-console: the screen failed: {reason}\nthe agent goes on recording; start the console again\n{where}"


def _write_report(error: BaseException) -> Path | None:
    try:
        return write_report(error, sys.argv)
    except Exception:
        return None  # a full disk must not hide the cause
