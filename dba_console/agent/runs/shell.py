"""A short command of a check or a measurement: its end and the beginning of its output, within a time limit.

What may take long goes through a keeper and not through here.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dba_console.clock import Clock
from dba_console.keeping.launch import INHERITED
from dba_console.processes import python

OUTPUT_LIMIT = 64 * 1024
"""Bytes of output that are kept; more is read and thrown away, so that the command does not wait for us."""
DEFAULT_S = 10.0
"""Where the block names no timeout."""
THIS_PROGRAM = tuple(python("dba_console"))
_SPEAKS = {"LC_ALL": "C.UTF-8", "LANGUAGE": "", "PG_COLOR": "never"}
"""LANGUAGE goes before LC_ALL where that is not plain C (gettext, "The LANGUAGE variable"), and what programs print is
read."""
_PLACES = (
    "XDG_STATE_HOME", "XDG_CONFIG_HOME", "DBA_CONSOLE_CONFIG", "DBA_CONSOLE_SESSIONS", "DBA_CONSOLE_RUNTIME",
    "DBA_CONSOLE_PG_BINDIR",
)  # fmt: skip
REAP_S = 2.0
"""After SIGKILL: a process in an uninterruptible wait is left to the kernel."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended."""

    code: int | None
    """None: it did not end in time."""
    output: str
    errors: str
    seconds: float


def script(body: str) -> list[str]:
    """The argv that runs a shell script which stops at its first error, in a pipeline too."""
    return ["/bin/bash", "-euo", "pipefail", "-c", body, "runbook"]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """A small inherited environment that speaks English without colours and knows this program, and what is given."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED}
    return {**kept, **_SPEAKS, **itself(os.environ.get("PATH", os.defpath)), **given}


def itself(path: str) -> dict[str, str]:
    """By which `dba-console` in a script means this very program, whatever else of that name there is.

    A function that bash takes from its environment; who starts it otherwise (`exec`, `xargs`, `nice`) finds it at the
    end of the path. What names its places goes with it: it reads and keeps where we do.
    """
    own = " ".join(map(shlex.quote, THIS_PROGRAM))
    beside = os.path.dirname(sys.executable)
    places = {name: os.environ[name] for name in _PLACES if name in os.environ}
    return {"BASH_FUNC_dba-console%%": f'() {{  {own} "$@"\n}}', "PATH": f"{path}:{beside}", **places}


def program(argv: Sequence[str]) -> list[str]:
    """The argv of a command; `dba-console` in its first place is this very program.

    >>> program(["dba-console", "--version"])[1:]
    ['-P', '-s', '-m', 'dba_console', '--version']
    """
    return [*THIS_PROGRAM, *argv[1:]] if argv and argv[0] == "dba-console" else list(argv)


def run_short(argv: Sequence[str], env: Mapping[str, str], timeout_s: float, clock: Clock) -> Ended:
    """Run it in a process group of its own, killed when the time is up. Raises OSError where it cannot start."""
    begun_us = clock.mono_us()
    until_us = begun_us + int(timeout_s * 1e6)
    process = subprocess.Popen(
        list(argv), env=dict(env), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    try:
        _drain(dict(kept), until_us, clock)
        code = _waited(process, (until_us - clock.mono_us()) / 1e6)
    finally:
        _kill_group(process)
        out, errors = (bytes(data).decode("utf-8", "replace") for data in kept.values())
        process.stdout.close()
        process.stderr.close()
    return Ended(code, out, errors, (clock.mono_us() - begun_us) / 1e6)


def _drain(open_ends: dict[int, bytearray], until_us: int, clock: Clock) -> None:
    """Read until every end is closed or the time is up."""
    while open_ends and (left_us := until_us - clock.mono_us()) > 0:
        for end in select.select(list(open_ends), [], [], left_us / 1e6)[0]:
            data = os.read(end, 65536)
            if not data:
                del open_ends[end]
            elif len(open_ends[end]) < OUTPUT_LIMIT:
                open_ends[end] += data[: OUTPUT_LIMIT - len(open_ends[end])]


def _waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """What is left of it, children included."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    _waited(process, REAP_S)
