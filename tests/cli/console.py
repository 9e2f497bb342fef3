"""Runs dba-console as a user does: as a command, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True)
class Done:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def objects(self) -> list[Any]:
        """stdout as one JSON object per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Console:
    """`dba-console` with nothing of this user: own home, sessions, sockets; no variable of libpq."""

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
        }
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {**kept, **own, **self.environment, **more}

    def write_config(self, text: str) -> None:
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 60.0, **environ: str) -> Done:
        """Run to the end. `environ` are further variables."""
        done = subprocess.run(
            self.command(*arguments), input=stdin or "", capture_output=True, text=True, timeout=timeout, check=False,
            env=self.environ(**environ), encoding="utf-8",
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Runs beside the block; told to end after it (SIGTERM) where it has not, and its pipes are closed."""
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
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "dba_console", *arguments]
