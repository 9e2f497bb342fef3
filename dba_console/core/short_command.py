"""Run a short command with a timeout; returns its exit code and the start of its output.

Commands that may take long run through a keeper instead.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from dba_console.core.clock import Clock

OUTPUT_LIMIT = 64 * 1024
"""Bytes of output that are kept; more is read and discarded, so that the command is not blocked."""
REAP_TIMEOUT_S = 2.0
"""Wait after SIGKILL: a process in an uninterruptible wait is left to the kernel."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    code: int | None
    """None if it did not end in time."""
    output: str
    errors: str
    seconds: float


def run_short(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    clock: Clock,
    data: bytes = b"",
    limit: int = OUTPUT_LIMIT,
) -> CommandResult:
    """Run the command in its own process group, killed at the timeout; `data` is its input, `limit` the bytes kept of
    each output. Raises OSError if it cannot start."""
    started_us = clock.mono_us()
    deadline_us = started_us + int(timeout_s * 1e6)
    process = subprocess.Popen(
        list(argv), env=dict(env), cwd="/", stdin=subprocess.PIPE if data else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    try:
        _exchange(process.stdin, data, dict(kept), limit, deadline_us, clock)
        code = _wait(process, (deadline_us - clock.mono_us()) / 1e6)
    finally:
        _kill_group(process)
        out, errors = (bytes(data).decode("utf-8", "replace") for data in kept.values())
        process.stdout.close()
        process.stderr.close()
    return CommandResult(code, out, errors, (clock.mono_us() - started_us) / 1e6)


def _exchange(
    stdin: IO[bytes] | None, data: bytes, outputs: dict[int, bytearray], limit: int, deadline_us: int, clock: Clock
) -> None:
    """Write the input and read the outputs until all are closed or the timeout."""
    rest = memoryview(data)
    try:
        if stdin is not None:
            os.set_blocking(stdin.fileno(), False)
        while (outputs or stdin) and (left_us := deadline_us - clock.mono_us()) > 0:
            readable, writable, _ = select.select(list(outputs), [stdin] if stdin else [], [], left_us / 1e6)
            if stdin is not None and writable:
                try:
                    rest = rest[os.write(stdin.fileno(), rest) :]
                except BrokenPipeError:
                    rest = rest[:0]  # it ended without reading: its exit code shows that
                if not rest:
                    stdin.close()
                    stdin = None
            for output in readable:
                got = os.read(output, 65536)
                if not got:
                    del outputs[output]
                elif len(outputs[output]) < limit:
                    outputs[output] += got[: limit - len(outputs[output])]
    finally:
        if stdin is not None:
            stdin.close()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of the process group, including children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    _wait(process, REAP_TIMEOUT_S)
