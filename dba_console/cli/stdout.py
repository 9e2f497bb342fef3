"""The one place that writes to stdout, and what it says when nobody takes it. Loads nothing: --version passes here."""

from __future__ import annotations

import sys

from dba_console.core.errors import ConsoleError


class OutputClosed(Exception):
    """Nobody reads stdout any more (`| head`). Not an OSError, which the argument parser would take for its own."""


def put(text: str) -> None:
    """Write `text` and a line end, at once: a tick belongs to its second even in a pipe.

    Raises ReaderGone where nobody reads any more, ConsoleError where stdout cannot take it (a full disk).
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise ConsoleError(f"cannot write to standard output: {error.strerror}") from error
