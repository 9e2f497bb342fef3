"""A real agent in its own process, and an attached console."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import EventMessage, SampleMessage
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, decode_sample
from tests.background import wait_until

WAIT_S = 120.0
"""Limit for events that must come: the machine may be busy."""
INTERVAL_S = 0.25
"""Time between two samples of the agents of tests. A test whose claim is seconds sets DBA_CONSOLE_AGENT_INTERVAL=1s."""


class ConsoleClient:
    """A console without a screen: receives messages of the agent and derives frames."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.picture = Picture()
        self.history = ChartHistory()
        self.events: list[Event] = []
        self.samples: list[Sample] = []

    def next_frame(self, timeout_s: float = WAIT_S) -> Frame:
        """The frame of the next sample. Raises AssertionError when none comes in time."""
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            message = self.client.receive(left)
            if isinstance(message, EventMessage):
                self.events.append(message.event)
            elif isinstance(message, SampleMessage):
                sample = decode_sample(message.data)
                self.samples.append(sample)
                self.picture = self.picture.with_sample(sample)
                self.history.add(sample.wall_us, message.point)
                return derive(self.picture, self.history, self.events)
        raise AssertionError(f"no sample in {timeout_s:g} s")

    def until(self, wanted: Callable[[Frame], object], timeout_s: float = WAIT_S, *, what: str = "the frame") -> Frame:
        """The first frame that `wanted` accepts."""
        end = time.monotonic() + timeout_s
        frame = None
        while time.monotonic() < end:
            frame = self.next_frame(max(1.0, end - time.monotonic()))
            if wanted(frame):
                return frame
        raise AssertionError(f"{what} did not come in {timeout_s:g} s; last: {frame}")

    def event(self, kind: str, timeout_s: float = WAIT_S) -> Event:
        """The first event of this kind, waited for."""
        self.until(lambda _: any(event.kind == kind for event in self.events), timeout_s, what=kind)
        return next(event for event in self.events if event.kind == kind)


class RunningAgent:
    """`dba-console record` as a process."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self._clients: list[AgentClient] = []

    def watch(self) -> ConsoleClient:
        """Attach as a console."""
        return ConsoleClient(self.client())

    def client(self) -> AgentClient:
        """A connection, closed with the agent."""
        self._clients.append(AgentClient.connect(self.socket(), timeout_s=60.0))
        return self._clients[-1]

    def socket(self) -> Path:
        """The agent's own socket, once it listens."""

        def listening() -> Path | None:
            if self.process.poll() is not None:
                raise AssertionError(f"the agent ended with {self.process.returncode}: {self.errors()}")
            sockets = (self.directory / "run").glob("*.sock")
            return next((path for path in sockets if _pid_listening_on(path) == self.process.pid), None)

        return wait_until(listening, WAIT_S, what="the agent's socket")

    def errors(self) -> str:
        return (self.directory / "stderr").read_text()

    def session(self) -> Path:
        (found,) = [path for path in (self.directory / "sessions").iterdir() if path.is_dir()]
        return found

    def kill(self) -> None:
        """End everything, in order or not."""
        self.close_clients()
        self.process.kill()
        self.process.wait()

    def close_clients(self) -> None:
        """Close the connections made so far."""
        while self._clients:
            self._clients.pop().close()

    def end(self) -> int:
        """End it in order; its exit code."""
        self.process.terminate()
        return self.process.wait(WAIT_S)


def _pid_listening_on(path: Path) -> int | None:
    """The process that answers on a socket."""
    try:
        client = AgentClient.connect(path, role="show", timeout_s=WAIT_S)
    except ConsoleError:
        return None
    client.close()
    return client.agent_description.pid


def environment(directory: Path) -> dict[str, str]:
    """Sessions, sockets and configuration of the test's own, and four samples a second."""
    return {
        "DBA_CONSOLE_SESSIONS": str(directory / "sessions"),
        "DBA_CONSOLE_RUNTIME": str(directory / "run"),
        "XDG_CONFIG_HOME": str(directory / "config"),
        "XDG_STATE_HOME": str(directory / "state"),
        "DBA_CONSOLE_AGENT_INTERVAL": f"{INTERVAL_S * 1000:.0f}ms",
    }


@contextmanager
def agent(
    dsn: str, directory: Path, *options: str, extra: Mapping[str, str] | None = None, program: str = "dba_console"
) -> Iterator[RunningAgent]:
    """An agent recording `dsn`, killed at the end of the block. `extra`: further environment variables.

    Within the block this process has the agent's directories in its environment too.
    """
    ours = environment(directory)
    with pytest.MonkeyPatch.context() as patch, open(directory / "stderr", "wb") as errors:
        for name, value in ours.items():
            patch.setenv(name, value)
        process = subprocess.Popen(
            [sys.executable, "-m", program, "record", *options, dsn],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **(extra or {})},
        )
        running = RunningAgent(process, directory)
        try:
            yield running
        finally:
            running.kill()


def connection_closed(watch: ConsoleClient) -> bool:
    """True once the agent closed the connection."""
    try:
        while watch.client.receive(WAIT_S) is not None:
            pass
    except (AgentConnectionLost, ConnectError):
        return True
    return False
