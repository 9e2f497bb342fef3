"""Finding the agent of a target, starting one where none runs. No driver and no screen is loaded here.

The agent is a process of its own session with no terminal, so a dropped SSH session does not reach it. What it needs
to know goes through its standard input: a connection string may hold a password, and arguments are seen by everyone.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from dba_console import paths
from dba_console.agent.client import AgentClient
from dba_console.agent.lock import TargetLock, socket_path
from dba_console.config import Config
from dba_console.errors import ConnectError, ConsoleError, ExitCode
from dba_console.target import Target

_COMMAND = [sys.executable, "-m", "dba_console.agent"]
START_S = 15.0
"""Seconds a new agent may take until it listens: on a host with stalled disks Python itself loads slowly."""


class LaunchRequest(msgspec.Struct, kw_only=True):
    """What a new agent reads from its standard input."""

    name: str
    key: str
    conninfo: str
    host_panels: bool | None
    config: Config
    foreground: bool = False
    """`dba-console record`: no grace time, errors go to stderr, a hangup ends it."""
    for_s: float | None = None
    sessions: str | None = None


class LaunchAnswer(msgspec.Struct, kw_only=True):
    """What it writes to its standard output: that it listens, or why it does not."""

    ok: bool
    message: str = ""
    hint: str | None = None
    code: int = 0


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent that answers."""

    key: str
    path: Path
    pid: int
    target: str
    session: str | None
    consoles: int
    started_us: int


class Launch:
    """An agent being started; `wait` until it listens. The console loads its screen meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes] | None, path: Path) -> None:
        self._process = process
        self.path = path

    def wait(self) -> Path:
        """The socket, once the agent listens. Raises the agent's own error, or ConnectError when it says nothing."""
        if self._process is None:
            return self.path
        output = self._process.stdout
        assert output is not None  # given as PIPE below
        try:
            ready = select.select([output], [], [], START_S)[0]
            text = output.readline() if ready else b""
        finally:
            output.close()
        if not text:
            raise ConnectError(
                f"the agent did not start within {START_S:.0f} s" if not ready else "the agent ended at once",
                hint=f"its log is {log_path()}",
            )
        answer = msgspec.json.decode(text, type=LaunchAnswer)
        if not answer.ok:
            error = ConsoleError(answer.message, hint=answer.hint)
            error.code = ExitCode(answer.code)
            raise error
        return self.path


def log_path() -> Path:
    """Where agents without a terminal write what they cannot show."""
    return paths.runtime_dir() / "agent.log"


def find_agent(target: Target) -> Path | None:
    """The socket of the running agent of this target, None where none runs."""
    return socket_path(target.key) if TargetLock(target.key).holder() is not None else None


def begin(target: Target, config: Config) -> Launch:
    """Start an agent for the target unless one runs; returns at once."""
    path = find_agent(target)
    if path is not None:
        return Launch(None, path)
    log = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env=_environment(),
        )
    finally:
        os.close(log)
    assert process.stdin is not None  # given as PIPE above
    process.stdin.write(msgspec.json.encode(_request(target, config)))
    process.stdin.close()
    return Launch(process, socket_path(target.key))


def become(target: Target, config: Config, *, for_s: float | None = None, sessions: Path | None = None) -> NoReturn:
    """Turn this process into the agent of the target, in the foreground; its pid, terminal and signals stay.

    What the command line needed to be read (a parser, help texts) is not carried along for weeks of recording.
    """
    request = _request(target, config)
    request.foreground, request.for_s, request.sessions = True, for_s, None if sessions is None else str(sessions)
    descriptor = os.memfd_create("request", 0)
    os.write(descriptor, msgspec.json.encode(request))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.execve(sys.executable, _COMMAND, _environment())


def _request(target: Target, config: Config) -> LaunchRequest:
    return LaunchRequest(
        name=target.name, key=target.key, conninfo=target.conninfo, host_panels=target.host_panels, config=config
    )


def _environment() -> dict[str, str]:
    # One arena: by default each lane's thread gets a heap of its own, megabytes that are touched once.
    return {**os.environ, "MALLOC_ARENA_MAX": "1"}


def list_agents() -> list[RunningAgent]:
    """Every agent of this user that answers, newest first."""
    found = []
    for path in sorted(paths.runtime_dir().glob("*.sock")):
        try:
            client = AgentClient.connect(path, role="show", timeout_s=1.0)
        except ConsoleError:
            continue
        hello = client.hello
        client.close()
        found.append(
            RunningAgent(path.stem, path, hello.pid, hello.target, hello.session, hello.consoles, hello.started_us)
        )
    return sorted(found, key=lambda agent: agent.started_us, reverse=True)
