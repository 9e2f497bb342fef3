"""Starts dba-console by forking a process that has its libraries loaded: loading them is most of what a command costs.

A forked process has its own arguments, environment, standard streams, signals and exit status; only the command line
in /proc is that of the server. Tests of how a command starts, or of its command line, use `Console.command` instead.

    python -m tests.cli.prefork FD      (FD: a socket; `Server` starts it)
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ")
"""Variables of this process that a dba-console gets, too."""
LIMIT = 1 << 17
"""Bytes of a request; the default buffer of a socket is larger."""
PIPE = 1 << 16
"""Bytes a pipe holds while nothing is read from it."""
PRELOADED = ("agent", "cli", "jobs", "recording", "runbooks", "watch")
"""Packages of dba_console that are loaded beforehand, with everything below them. The screen is not among them."""


class Request(NamedTuple):
    """The words after `dba-console`, and its environment. Four descriptors come along: 0, 1, 2, a pipe for answers."""

    arguments: list[str]
    environment: dict[str, str]


class Forked:
    """A running dba-console. The server sends two numbers: its process id at once, its exit code at the end."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.pid = self._number()

    def wait(self, timeout: float) -> int:
        """The exit code, or minus the number of the signal that ended it. Raises subprocess.TimeoutExpired."""
        if not select.select([self._answers], [], [], max(timeout, 0.0))[0]:
            raise subprocess.TimeoutExpired("dba-console", timeout)
        return self._number()

    def close(self) -> None:
        os.close(self._answers)

    def _number(self) -> int:
        answer = os.read(self._answers, 4)
        if len(answer) != 4:
            raise AssertionError("the process that forks dba-console has ended")
        return int.from_bytes(answer, "little", signed=True)


class Server:
    """The process that forks. It ends with the process that has started it, and kills what runs then."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.prefork", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2],
                start_new_session=True, env={name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
            )  # fmt: skip

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> Forked:
        """Fork dba-console with these standard streams. The caller closes its own descriptors of them."""
        request = msgspec.json.encode(Request([*arguments], {**environment}))
        ours, theirs = os.pipe()
        try:
            socket.send_fds(self._socket, [request], [*streams, theirs])
        finally:
            os.close(theirs)
        return Forked(ours)


@cache
def server() -> Server:
    """The one of this process."""
    return Server()


def run(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run dba-console and capture its output. Raises subprocess.TimeoutExpired after killing it."""
    end = time.monotonic() + timeout
    (read_in, write_in), (out, write_out), (err, write_err) = os.pipe(), os.pipe(), os.pipe()
    try:
        os.write(write_in, stdin.encode())
        forked = server().start(arguments, environment, [read_in, write_out, write_err])
    finally:
        for descriptor in (read_in, write_in, write_out, write_err):
            os.close(descriptor)
    try:
        texts = _read((out, err), end)
        code = forked.wait(end - time.monotonic())
    except subprocess.TimeoutExpired:
        os.kill(forked.pid, signal.SIGKILL)
        raise
    finally:
        forked.close()
        os.close(out)
        os.close(err)
    return subprocess.CompletedProcess([*arguments], code, *texts)


def _read(pipes: Sequence[int], end: float) -> list[str]:
    """Return what was written to each pipe until it was closed."""
    found = dict.fromkeys(pipes, b"")
    still = [*pipes]
    while still:
        ready = select.select(still, [], [], max(end - time.monotonic(), 0.0))[0]
        if not ready:
            raise subprocess.TimeoutExpired("dba-console", 0.0, output=b"".join(found.values()))
        for pipe in ready:
            more = os.read(pipe, PIPE)
            found[pipe] += more
            if not more:
                still.remove(pipe)
    return [found[pipe].decode() for pipe in pipes]


def main() -> int:
    """Fork for each request. In a forked process: run dba-console and return its exit code."""
    import psycopg  # noqa: F401  # dba-console imports it with its first connection

    from dba_console.__main__ import main as start
    from dba_console.cli.app import run as dba_console

    for name in PRELOADED:
        package = importlib.import_module(f"dba_console.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    dba_console(["config", "path"])  # what typer and msgspec load and cache with their first command
    gc.freeze()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding=stream.encoding, errors=stream.errors, closefd=False)
        for number, mode, stream in ((0, "r", sys.stdin), (1, "w", sys.stdout), (2, "w", sys.stderr))
    )
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.argv[1:] = request.arguments
    return start()


def _serve(requests: socket.socket) -> Request | None:
    """Return the request for which this process was forked, None in the server after the last request."""
    running: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its id, the pipe for answers
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                poll.unregister(ready)
                pid, answers = running.pop(ready)
                os.close(ready)
                _answer(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(answers)
                continue
            text, descriptors, _, _ = socket.recv_fds(requests, LIMIT, 4)
            if not text:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if pid == 0:
                for number, descriptor in enumerate(descriptors[:3]):
                    os.dup2(descriptor, number)
                requests.detach()
                os.closerange(3, max(descriptors[-1], *running, 3) + 1)
                return msgspec.json.decode(text, type=Request)
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            _answer(descriptors[3], pid)
            running[process := os.pidfd_open(pid)] = pid, descriptors[3]
            poll.register(process, select.POLLIN)


def _answer(pipe: int, number: int) -> None:
    """Send a number; the test that would read it may have given up."""
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, number.to_bytes(4, "little", signed=True))


if __name__ == "__main__":
    sys.exit(main())
