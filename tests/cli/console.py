"""Runs dba-console as a user does: as a command, in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dba_console.agent.client import AgentClient
from dba_console.core.errors import ConnectError
from dba_console.watch.frames.model import Frame
from tests.agent.agents import ConsoleClient
from tests.background import wait_until
from tests.cli import prefork

_COMMANDS_WITHOUT_FORK = (("stamp",), ("version",), ("--version",), ("--help",))
LISTEN_LIMIT_S = 120.0
BUSY_HOST = """
[findings]
off = [
    "cache-dropped", "cache-reread", "console-late", "device-saturated", "disk-filling", "io-slow", "io-stalled",
    "lane-stuck", "memory-reclaim", "memory-settings", "oom-kill", "reclaim-stall", "recording-lags", "swap-in-use",
    "wal-on-tmpfs",
]
"""
"""Configuration without the rules that find what other tests do to this host, or where tests keep their servers."""
_INTERPRETER_VARIABLES = {"LANG", "LC_ALL", "PYTHONUTF8", "PYTHONCOERCECLOCALE"}


@dataclass(frozen=True)
class CompletedCommand:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def objects(self) -> list[Any]:
        """stdout as one JSON object per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Agent:
    """An agent that listens, and records in the foreground."""

    process: subprocess.Popen[str]
    socket: Path
    target: str

    def watch(self) -> AgentClient:
        """A connection as of a console that stays; to be closed."""
        return AgentClient.connect(self.socket, timeout_s=LISTEN_LIMIT_S)

    def until(self, wanted: Callable[[Frame], object], what: str) -> Frame:
        """The first frame from now on that `wanted` accepts."""
        with closing(self.watch()) as client:
            return ConsoleClient(client).until(wanted, LISTEN_LIMIT_S, what=what)

    def raised(self, rule: str) -> Frame:
        """The first frame from now on in which a finding of that rule is open."""
        return self.until(lambda frame: any(row.rule == rule for row in frame.findings), rule)

    def end(self) -> None:
        """End it in order."""
        self.process.terminate()
        assert self.process.wait(LISTEN_LIMIT_S) == 0


@dataclass(frozen=True)
class Console:
    """`dba-console` with nothing of this user: own home, sessions, sockets; no variable of libpq.

    Its agents read each 250 ms, the shortest interval; give DBA_CONSOLE_AGENT_INTERVAL where seconds matter.
    """

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def sessions(self) -> Path:
        return self.home / "state" / "dba-console" / "sessions"

    @property
    def runtime(self) -> Path:
        return self.home / "run"

    @property
    def config(self) -> Path:
        return self.home / "config" / "dba-console" / "config.toml"

    def environ(self, **more: str) -> dict[str, str]:
        own = {
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "DBA_CONSOLE_RUNTIME": str(self.runtime),
            "DBA_CONSOLE_AGENT_INTERVAL": "250ms",
        }
        kept = {name: os.environ[name] for name in prefork.PASSED_VARIABLES if name in os.environ}
        return {**kept, **own, **self.environment, **more}

    def write_config(self, text: str) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0, **environ: str) -> CompletedCommand:
        """Run to the end. `environ` are further variables.

        Forked from a process with the libraries loaded, except where the start of the interpreter matters: a variable
        that it reads, a command that loads nothing, more input than a pipe holds.
        """
        given, environment = stdin or "", self.environ(**environ)
        if (
            arguments[:1] in _COMMANDS_WITHOUT_FORK
            or _INTERPRETER_VARIABLES & environ.keys()
            or len(given) * 4 > prefork.PIPE
        ):
            done = subprocess.run(
                self.command(*arguments), input=given, capture_output=True, text=True, timeout=timeout, check=False,
                env=environment, encoding="utf-8",
            )  # fmt: skip
        else:
            done = prefork.run(arguments, environment, given, timeout)
        return CompletedCommand(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Runs during the block; gets SIGTERM after it if it still runs, and its pipes are closed."""
        process = subprocess.Popen(
            self.command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=self.environ(**environ), encoding="utf-8",
        )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(LISTEN_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()

    @contextmanager
    def watching(self, dsn: str, **environ: str) -> Iterator[Agent]:
        """`record` beside the block, as soon as its agent listens."""
        with self.running("record", dsn, **environ) as process:
            yield wait_until(lambda: self._listening_agent(process), LISTEN_LIMIT_S, what="the agent listening")

    def _listening_agent(self, process: subprocess.Popen[str]) -> Agent | None:
        assert process.poll() is None, process.communicate()
        for path in self.runtime.glob("*.sock"):
            with (
                suppress(ConnectError),
                closing(AgentClient.connect(path, role="show", timeout_s=LISTEN_LIMIT_S)) as client,
            ):
                if client.agent_description.pid == process.pid:
                    return Agent(process, path, client.agent_description.target)
        return None

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "dba_console", *arguments]


@contextmanager
def own_console() -> Iterator[Console]:
    """A console whose home is removed after the block."""
    # pytest's own directories are too deep for the path of a socket.
    home = Path(tempfile.mkdtemp(prefix="dbac-cli-"))
    try:
        yield Console(home)
    finally:
        shutil.rmtree(home)
