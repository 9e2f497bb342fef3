"""A real agent on the server of the incident, started as a user starts it, and spoken to through its own socket."""

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
from dba_console.recording.listing import resolve
from dba_console.recording.recording import Recording

PATIENCE_S = 20.0
NAME = "shop"
"""What the header calls the server: a target of the configuration, as an operator would name it."""


class Watching:
    """`with Watching(base, dsn):` records; afterwards `directory` is the session. `base` holds all it writes."""

    def __init__(self, base: Path, dsn: str) -> None:
        self._sessions = base / "sessions"
        self._log = base / "agent.log"
        self.moments: dict[str, str] = {}
        """Names of moments worth a picture, and when they were (RFC 3339)."""
        (base / "config.toml").write_text(f"[targets.{NAME}]\ndsn = {_quoted(dsn)}\n")
        # In our own environment too: lock, socket and configuration are found through it.
        os.environ["DBA_CONSOLE_CONFIG"] = str(base / "config.toml")
        os.environ["DBA_CONSOLE_RUNTIME"] = str(base / "run")
        self.socket = socket_path(make_target(dsn, name=NAME).key)
        """Where its agent listens."""

    @property
    def directory(self) -> Path:
        """The session recorded."""
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
        """Mark this moment, as the key `m` does, and wait until the agent has told of it."""
        client = self._attached()
        try:
            client.send(Mark(text=text))
            while True:
                told = client.receive(PATIENCE_S)
                if told is None:
                    raise ConsoleError(f"the agent did not tell of the mark {text!r}")
                if isinstance(told, EventMessage) and told.event.text == text:
                    return
        except AgentConnectionLost as error:
            raise ConsoleError(f"the mark {text!r} could not be made: {error}") from error
        finally:
            client.close()

    def remember(self, moment: str) -> None:
        """Keep the time of the newest sample recorded under a name. Raises ConsoleError when the agent has ended."""
        if self._agent.poll() is not None:
            raise ConsoleError(f"the agent ended by itself: {self._log.read_text(errors='replace').strip()[-500:]}")
        recording = Recording.open(self.directory)
        try:
            last_us = recording.last_us
        finally:
            recording.close()
        whole, part = divmod(last_us, 1_000_000)
        self.moments[moment] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:06d}Z"

    def _attached(self) -> AgentClient:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                # `show` is the role of who reads and leaves: a console would be told of in the events.
                return AgentClient.connect(self.socket, role="show")
            except ConnectError:
                if self._agent.poll() is not None or time.monotonic() > until:
                    words = self._log.read_text(errors="replace").strip()
                    raise ConsoleError(f"the agent did not start: {words[-500:]}") from None
                time.sleep(0.1)


def _quoted(text: str) -> str:
    """A string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
