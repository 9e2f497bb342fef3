"""An agent and an interactive command, both forked from a process with the libraries of dba-console loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tests.cli.console import Console
from tests.cli.prefork import Forked, server

END_S = 30.0


@dataclass(frozen=True)
class Agent:
    """`dba-console record` under way."""

    process: Forked
    log: Path

    def check(self) -> None:
        """Raise AssertionError with its log where it has ended."""
        if not Path(f"/proc/{self.process.pid}").exists():
            raise AssertionError(f"the agent ended: {self.log.read_text()}")


@dataclass(frozen=True)
class Dialog:
    """A command under way, with both ends of its streams."""

    process: Forked
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO


@contextmanager
def recording_agent(console: Console, dsn: str) -> Iterator[Agent]:
    """An agent that records `dsn`; it gets SIGTERM after the block."""
    log = console.home / "agent.log"
    with open(os.devnull) as nothing, log.open("wb") as output:
        streams = [nothing.fileno(), output.fileno(), output.fileno()]
        process = server().start(["record", dsn], console.environ(), streams)
    try:
        yield Agent(process, log)
    finally:
        _end(process, signal.SIGTERM)


@contextmanager
def dialog(console: Console, arguments: list[str], *, timeout_s: float) -> Iterator[Dialog]:
    """A command whose questions the block answers; killed after `timeout_s`, or if the block raises."""
    (read_in, write_in), (read_out, write_out), (read_err, write_err) = os.pipe(), os.pipe(), os.pipe()
    with ExitStack() as streams:
        stdin = streams.enter_context(open(write_in, "w", encoding="utf-8"))
        stdout, stderr = (streams.enter_context(open(one, encoding="utf-8")) for one in (read_out, read_err))
        try:
            process = server().start(arguments, console.environ(), [read_in, write_out, write_err])
        finally:
            for descriptor in (read_in, write_out, write_err):
                os.close(descriptor)
        timer = threading.Timer(timeout_s, os.kill, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            yield Dialog(process, stdin, stdout, stderr)
        except BaseException:
            _end(process, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
        process.close()


def _end(process: Forked, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(END_S)
    finally:
        process.close()
