"""A command's output on its way to the session and to the consoles: whole lines, harmless, and never a flood."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from dba_console.keeping.command_status import LogReader, StampedLine
from dba_console.plans.run_view import OutputLine
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.session.appender import Appender

MAX_SENT_LINES = 400
"""Lines sent to consoles at once; of more than these the newest, and how many are left out is said."""
MAX_KEPT_LINES = 400
"""Newest lines of a run, for a console that attaches."""
MAX_LINE_LENGTH = 2000
"""Characters of a line on a screen."""

Send = Callable[[str, list[OutputLine], int], None]
"""Block, lines, and how many were left out before them."""


def read_newest_lines(directory: Path, tag: str) -> tuple[list[OutputLine], int]:
    """The newest lines of a keeper's log, which holds no secret that the keeper was told, and how many came before.

    Raises OSError.
    """
    tail, kept, count = LogReader(directory), deque[StampedLine](maxlen=MAX_KEPT_LINES), 0
    while read := tail.read():
        whole = [line for line in read if line.whole and line.stream in ("o", "e")]
        kept.extend(whole)
        count += len(whole)
    lines = [OutputLine(line.wall_us, line.stream, tag, clean(redact(line.text))[:MAX_LINE_LENGTH]) for line in kept]
    return lines, count - len(lines) + tail.dropped_lines


class NewestLines:
    """The newest lines of a run. Written by the run's thread, read by the listener's."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, OutputLine]] = deque(maxlen=MAX_KEPT_LINES)

    def add(self, block: str, lines: Sequence[OutputLine]) -> None:
        self._kept.extend((block, line) for line in lines)

    def newest(self) -> list[tuple[str, list[OutputLine]]]:
        """In order, those of one block together."""
        found: list[tuple[str, list[OutputLine]]] = []
        for block, line in list(self._kept):
            if not found or found[-1][0] != block:
                found.append((block, []))
            found[-1][1].append(line)
        return found


class CommandOutput:
    """Of one execution of one block."""

    def __init__(self, block: str, tag: str, appender: Appender, mask: Callable[[str], str], send: Send) -> None:
        self._block, self._tag, self._appender, self._mask, self._send = block, tag, appender, mask, send

    def feed(self, lines: list[StampedLine]) -> None:
        """Whole lines in the order in which they came."""
        if not lines:
            return
        self._appender.feed(lines)
        newest = lines[-MAX_SENT_LINES:]
        shown = [OutputLine(line.wall_us, line.stream, self._tag, self._text(line.text)) for line in newest]
        self._send(self._block, shown, len(lines) - len(newest))

    def close(self) -> None:
        self._appender.close()

    def _text(self, text: str) -> str:
        return clean(redact(self._mask(text)))[:MAX_LINE_LENGTH]
