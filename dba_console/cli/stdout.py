"""Write to stdout. No other module writes there. Imports nothing heavy, because --version uses it."""

from __future__ import annotations

import sys

from dba_console.core.errors import ConsoleError


class OutputClosed(Exception):
    """The reader of stdout has closed it (`| head`). Not an OSError, which the argument parser would handle itself."""


def put(text: str) -> None:
    """Write `text` and a line end, and flush: a tick belongs to its second even in a pipe.

    Raises OutputClosed if the reader has gone, ConsoleError if stdout cannot be written (disk full).
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None
    except OSError as error:
        raise ConsoleError(f"cannot write to standard output: {error.strerror}") from error
