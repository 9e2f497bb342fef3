"""A real agent on the server of the incident, started as users do, and used through its socket."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import EventMessage, Mark
from dba_console.agent.target_lock import socket_path
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.target import make_target
from dba_console.demo.child_processes import end_child, start_child
from dba_console.recording.recording import Recording
from dba_console.recording.session_lookup import resolve

TIMEOUT_S = 20.0
NAME = "shop"
"""Name of the server in the header: a target of the configuration."""


class Watching:
    """`with Watching(base, dsn):` records; afterwards `directory` is the session. All files are written to `base`."""

    def __init__(self, base: Path, dsn: str) -> None:
        self._sessions = base / "sessions"
        self._log = base / "agent.log"
        self.moments: dict[str, str] = {}
        """Named times for screenshots (RFC 3339)."""
        (base / "config.toml").write_text(f"[targets.{NAME}]\ndsn = {_quoted(dsn)}\n")
        # Set for this process too, which finds lock, socket and configuration through it.
        os.environ["DBA_CONSOLE_CONFIG"] = str(base / "config.toml")
        os.environ["DBA_CONSOLE_RUNTIME"] = str(base / "run")
        self.socket = socket_path(make_target(dsn, name=NAME).key)
        """Socket of the agent."""

    @property
    def directory(self) -> Path:
        """Directory of the recorded session."""
        return resolve("last", self._sessions)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "dba_console", "record", "--sessions", str(self._sessions), NAME]
        with self._log.open("ab") as log:
            self._agent = start_child(command, output=log, environment=dict(os.environ))
        try:
            self._attached().close()
        except BaseException:
            end_child(self._agent)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_child(self._agent, patience_s=15.0)

    def mark(self, text: str) -> None:
        """Set a mark, as the key `m` does, and wait for its event."""
        client = self._attached()
        try:
            client.send(Mark(text=text))
            while True:
                message = client.receive(TIMEOUT_S)
                if message is None:
                    raise ConsoleError(f"the agent did not confirm the mark {text!r}")
                if isinstance(message, EventMessage) and message.event.text == text:
                    return
        except AgentConnectionLost as error:
            raise ConsoleError(f"cannot set the mark {text!r}: {error}") from error
        finally:
            client.close()

    def remember(self, moment: str) -> None:
        """Store the time of the newest recorded sample under a name. Raises ConsoleError if the agent has ended."""
        if self._agent.poll() is not None:
            raise ConsoleError(f"the agent ended unexpectedly: {self._log.read_text(errors='replace').strip()[-500:]}")
        recording = Recording.open(self.directory)
        try:
            last_us = recording.last_us
        finally:
            recording.close()
        whole, part = divmod(last_us, 1_000_000)
        self.moments[moment] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:06d}Z"

    def _attached(self) -> AgentClient:
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                # The role `show` only reads; a console would add an event.
                return AgentClient.connect(self.socket, role="show")
            except ConnectError:
                if self._agent.poll() is not None or time.monotonic() > until:
                    log = self._log.read_text(errors="replace").strip()
                    raise ConsoleError(f"the agent did not start: {log[-500:]}") from None
                time.sleep(0.1)


def _quoted(text: str) -> str:
    """Return a TOML string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
