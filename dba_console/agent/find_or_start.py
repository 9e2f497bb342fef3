"""Find the agent of a target, or start one. Loads neither the driver nor the screen.

The agent is a process in its own session without a terminal, so a dropped SSH session does not reach it. Its request
goes through standard input: a connection string may hold a password, and every user can read arguments.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import AgentDescription, EndIfRefused, Notice
from dba_console.agent.target_lock import TargetLock, socket_path
from dba_console.core import paths
from dba_console.core.config import Config
from dba_console.core.decoding import from_json
from dba_console.core.errors import ConnectError, ConsoleError, ExitCode
from dba_console.core.safe_environment import python_command
from dba_console.core.target import Target, holds_secret

# Replacing an agent that PostgreSQL has never let in by one with the credentials of a later caller.
#
# An agent keeps the environment of the console that started it. If its password was missing or wrong, it must not block
# a later caller with the right one. Credentials are compared here, in the caller; none is sent over the socket.

END_S = 15.0
"""An agent that is asked to end first completes its recording, which takes time on a busy disk."""
POLL_S = 0.05
_CREDENTIAL_PREFIXES = ("PG", "KRB5", "SSL_CERT")
"""Prefixes of the variables by which libpq and its libraries find credentials (libpq-envars)."""
_HOME = "HOME"
"""Directory of .pgpass, .pg_service.conf and .postgresql."""


def end_if_refused(path: Path, key: str, conninfo: str) -> bool:
    """Ask the agent at `path` to end if it was never let in and this caller has other credentials.

    Returns True once it has ended; False if it stays or does not answer.
    """
    try:
        client = AgentClient.connect(path, role="show")
    except ConsoleError:
        return False
    try:
        if not should_replace(client.agent_description, conninfo):
            return False
        client.send(EndIfRefused())
        return _has_ended(client, TargetLock(key))
    except AgentConnectionLost:
        return False
    finally:
        client.close()


def should_replace(description: AgentDescription, conninfo: str) -> bool:
    """Return whether PostgreSQL never let that agent in, and might let in this caller."""
    return bool(description.refused) and (
        holds_secret(conninfo) or _credential_environment(description.pid) != _credential_variables(os.environb)
    )


def _has_ended(client: AgentClient, lock: TargetLock) -> bool:
    until = time.monotonic() + END_S
    pause = threading.Event()
    try:
        while (left := until - time.monotonic()) > 0:
            message = client.receive(left)
            if isinstance(message, Notice) and message.kind == "refused":
                return False
    except AgentConnectionLost:
        # It has sent its last message; the process ends after that.
        while lock.holder() == client.agent_description.pid and time.monotonic() < until:
            pause.wait(POLL_S)
    return lock.holder() != client.agent_description.pid


def _credential_environment(pid: int) -> dict[bytes, bytes] | None:
    """Return the credential variables of a process at its start; None if they cannot be read (proc(5))."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return _credential_variables(dict(entry.partition(b"=")[::2] for entry in entries if b"=" in entry))


def _credential_variables(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    names = tuple(name.encode() for name in _CREDENTIAL_PREFIXES)
    return {name: one for name, one in environment.items() if name.startswith(names) or name == _HOME.encode()}


_COMMAND = python_command("dba_console.agent")
START_S = 15.0
"""Maximum start time of an agent in seconds: on a host with stalled disks Python itself loads slowly."""


class LaunchRequest(msgspec.Struct, kw_only=True):
    """The request that a new agent reads from its standard input."""

    target: Target
    config: Config
    foreground: bool = False
    """`dba-console record`: no grace time, errors go to stderr, SIGHUP ends it."""
    for_s: float | None = None
    sessions: str | None = None

    def __repr__(self) -> str:
        # The connection string may hold a password.
        return f"LaunchRequest({self.target.name!r})"


class LaunchAnswer(msgspec.Struct, kw_only=True):
    """The answer of a new agent on its standard output: it listens, or why not."""

    ok: bool
    message: str = ""
    hint: str | None = None
    code: int = 0


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """A running agent that answers."""

    key: str
    path: Path
    pid: int
    target: str
    session: str | None
    consoles: int
    started_us: int
    conninfo: str = ""
    """Without secrets."""


class Launch:
    """An agent being started; `wait` returns once it listens. The console loads its screen meanwhile."""

    def __init__(
        self, key: str, answer: int | None = None, other: Callable[[Path], Launch | None] = lambda path: None
    ) -> None:
        """`answer` is the pipe of a new agent's answer, None if an agent was already running. `other` starts a
        replacement of the listening agent, or returns None if that one is used.
        """
        self._key = key
        self._answer = answer
        self._start_replacement = other
        self.path = socket_path(key)

    def wait(self) -> Path:
        """Return the socket once the agent listens. Raises the agent's own error, or ConnectError without an answer."""
        if self._answer is not None:
            answer, self._answer = self._answer, None
            _read_launch_answer(answer)
        self._wait_until_listening()
        other = self._start_replacement(self.path)
        return self.path if other is None else other.wait()

    def _wait_until_listening(self) -> None:
        """Wait for the socket: another console may have just started the agent, which takes the lock first."""
        lock = TargetLock(self._key)
        pause = threading.Event()
        for _ in range(int(START_S / POLL_S)):
            if _is_listening(self.path):
                return
            if lock.holder() is None:
                break
            pause.wait(POLL_S)
        raise ConnectError("the agent does not listen on its socket", hint=f"see its log {log_path()}")


def _read_launch_answer(pipe: int) -> None:
    """Read the new agent's answer. Raises its error, or ConnectError without an answer."""
    try:
        ready = select.select([pipe], [], [], START_S)[0]
        text = os.read(pipe, 65536) if ready else b""
    finally:
        os.close(pipe)
    if not text:
        message = "the agent ended at once" if ready else f"the agent did not start within {START_S:.0f} s"
        raise ConnectError(message, hint=f"see its log {log_path()}")
    try:
        answer = from_json(text, LaunchAnswer)
    except msgspec.DecodeError:
        raise ConnectError(
            "the agent did not start: its answer is not valid", hint=f"see its log {log_path()}"
        ) from None
    if not answer.ok:
        error = ConsoleError(answer.message, hint=answer.hint)
        error.code = ExitCode(answer.code)
        raise error


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def log_path() -> Path:
    """Return the log file of agents without a terminal."""
    return paths.runtime_dir() / "agent.log"


def find_agent(target: Target) -> Path | None:
    """Return the socket of the running agent of this target, None if none runs."""
    return socket_path(target.key) if TargetLock(target.key).holder() is not None else None


def start_agent(target: Target, config: Config, *, replace: bool = False) -> Launch:
    """Start an agent for the target unless one runs; returns at once.

    `replace`: replace an agent that PostgreSQL has never let in if this process has other credentials. For new
    consoles, not for reconnecting ones: two refused consoles would replace each other's agent forever.
    """
    if find_agent(target) is not None:
        if not replace:
            return Launch(target.key)

        def other(path: Path) -> Launch | None:
            return start_agent(target, config) if end_if_refused(path, target.key, target.conninfo) else None

        return Launch(target.key, other=other)
    log = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    request, answer = _memory_file(LaunchRequest(target=target, config=config)), os.pipe()
    try:
        # The agent is not waited for: it outlives this process, in its own process session.
        os.posix_spawn(
            _COMMAND[0],
            _COMMAND,
            _environment(),
            setsid=True,
            file_actions=[(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate((request, answer[1], log))],
        )
    finally:
        for descriptor in (request, answer[1], log):
            os.close(descriptor)
    return Launch(target.key, answer[0])


def _memory_file(request: LaunchRequest) -> int:
    """Return a memory file at its beginning, visible only to this process and its children."""
    descriptor = os.memfd_create("request")
    os.write(descriptor, msgspec.json.encode(request))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def exec_agent(target: Target, config: Config, *, for_s: float | None = None, sessions: Path | None = None) -> NoReturn:
    """Replace this process by the agent of the target, in the foreground; pid, terminal and signals stay.

    exec frees the modules of the command line (parser, help texts), not needed during weeks of recording.
    """
    directory = None if sessions is None else str(sessions.absolute())
    request = LaunchRequest(target=target, config=config, foreground=True, for_s=for_s, sessions=directory)
    os.dup2(_memory_file(request), 0)
    os.execve(_COMMAND[0], _COMMAND, _environment())


def _environment() -> dict[str, str]:
    # One arena: by default each lane's thread gets its own heap, megabytes that are touched once. Fixed thresholds
    # (mallopt(3)): otherwise glibc adapts and keeps what a block's compression needs for a moment each minute.
    ours = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    return {**os.environ, **ours}


def list_agents() -> list[RunningAgent]:
    """Return every agent of this user that answers, newest first.

    Raises PermissionDenied if other users may put sockets into the directory.
    """
    found, directory = [], paths.runtime_dir()
    if directory.is_dir():
        paths.private_dir(directory)
    for path in sorted(directory.glob("*.sock")):
        try:
            client = AgentClient.connect(path, role="show", timeout_s=3.0)  # the host may be very busy
        except ConsoleError:
            continue
        description = client.agent_description
        client.close()
        found.append(
            RunningAgent(
                key=path.stem,
                path=path,
                pid=description.pid,
                target=description.target,
                session=description.session,
                consoles=description.consoles,
                started_us=description.started_us,
                conninfo=description.conninfo,
            )
        )
    return sorted(found, key=lambda agent: agent.started_us, reverse=True)
