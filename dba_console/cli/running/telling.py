"""How changes of a run leave this process: lines for people, or one JSON object a line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

from dba_console.cli.framing import terminal_width
from dba_console.cli.output import put_json
from dba_console.cli.running.changes import Change
from dba_console.cli.running.story import story
from dba_console.cli.stdout import put
from dba_console.panels.cells import plain

WIDE = 160
"""Cells of a line where stdout is no terminal: a pipe wraps nothing, and a table needs some width."""


def teller(*, json: bool) -> Callable[[Change, int], None]:
    """Tells a change of the time `at_us` on stdout."""
    return _tell_json if json else _tell_text


def _tell_json(change: Change, at_us: int) -> None:
    at = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    put_json({"at": at, **change})


def _tell_text(change: Change, at_us: int) -> None:
    cells = terminal_width() if sys.stdout.isatty() else WIDE
    for line in story(change, at_us, cells):
        put(plain(line))
