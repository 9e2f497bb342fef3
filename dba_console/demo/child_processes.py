"""Child processes that end with this process, however it ends. Linux: PR_SET_PDEATHSIG, prctl(2)."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from dba_console.demo.server_account import SpawnAs

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start_child(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    output: int | IO[bytes] | None = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    spawn: SpawnAs | None = None,
    own_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a process that gets SIGTERM when the calling thread ends: call it from the main thread.

    `output` gets its stdout and stderr; None inherits ours. With `own_session` ctrl-C does not reach it.
    """
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=own_session,
        preexec_fn=_die_with_parent,  # runs after the change of user, which would clear it
        **(spawn or {}),
    )


def end_child(process: subprocess.Popen[bytes], *, patience_s: float = 5.0) -> None:
    """Send SIGTERM, and SIGKILL after `patience_s`; the process is reaped and its pipes are closed on return."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
