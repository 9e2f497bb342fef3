"""How changes of a run leave this process: lines for people, or one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

from dba_console.cli.formatting import print_json
from dba_console.cli.frame_output import terminal_width
from dba_console.cli.running.change_text import change_lines
from dba_console.cli.running.view_changes import Change
from dba_console.cli.stdout import put
from dba_console.panels.text_elements import line_text

PIPE_WIDTH = 160
"""Cells of a line where stdout is no terminal: a pipe wraps nothing, and a table needs some width."""


def change_printer(*, json: bool) -> Callable[[Change, int], None]:
    """Tells a change of the time `at_us` on stdout."""
    return _print_json if json else _print_text


def _print_json(change: Change, at_us: int) -> None:
    at = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    print_json({"at": at, **change})


def _print_text(change: Change, at_us: int) -> None:
    cells = terminal_width() if sys.stdout.isatty() else PIPE_WIDTH
    for line in change_lines(change, at_us, cells):
        put(line_text(line))
