"""How a program that is gone ended: known where a keeper of ours ran it. Reads a small file; in a lane only."""

from __future__ import annotations

from dba_console.keeping.command_status import wait

KEEPER = "keeper in "
RECORD_WAIT_S = 2.0
"""A keeper writes its record once the last line is in its log."""


def read_exit_code(source: str | None, pid: int) -> int | None:
    """The exit code of process `pid`, below 0 the signal that ended it; `source` says where its messages were read."""
    if source is None or not source.startswith(KEEPER):
        return None
    try:
        standing = wait(source.removeprefix(KEEPER), RECORD_WAIT_S)
    except OSError:
        return None
    if standing.exit is None or standing.running is None or standing.running.child_pid != pid:
        return None  # of the command it was part of nothing follows for it
    return -standing.exit.signal if standing.exit.signal is not None else standing.exit.code
