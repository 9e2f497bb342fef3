"""Lines of commands' output as the session keeps them beside its events: readable with grep and plain SQL.

They are not in the chain of events: the raw output of a command lies in its own file, and its record in a run's
journal says how much of it there was.
"""

from __future__ import annotations

from typing import NamedTuple

from dba_console.redact import redact
from dba_console.session.journal import one_line, word


class LogLine(NamedTuple):
    """One line of output, stamped with the time it arrived."""

    wall_us: int
    tag: str
    text: str
    stream: str = "o"
    """o or e."""
    run: str = ""
    block: str = ""
    execution: int = 0


def tidy_line(line: LogLine) -> LogLine:
    """The line as it is kept: secrets out, one harmless line."""
    return line._replace(tag=word(line.tag), text=one_line(redact(line.text)))
