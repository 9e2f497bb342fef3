"""Real consoles on a real server in a real terminal: directories of the test's own, agents ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dba_console.agent.launch import RunningAgent, list_agents
from tests.background import wait_until
from tests.terminal.tmux import Tmux

PROGRAM = [sys.executable, "-m", "dba_console"]
LIVE = r"LIVE"
OVERVIEW = r"(?s)─ Connections .*LIVE|LIVE.*─ Connections "


class Room:
    """Where one test's sessions, sockets and reports lie."""

    def __init__(self, base: Path) -> None:
        self.sessions = base / "sessions"
        self.state = base / "state"
        self.environment: Mapping[str, str] = {
            "DBA_CONSOLE_SESSIONS": str(self.sessions),
            "DBA_CONSOLE_RUNTIME": str(base / "run"),
            "DBA_CONSOLE_CONFIG": str(base / "config.toml"),
            "XDG_STATE_HOME": str(self.state),
        }
        (base / "config.toml").write_text('[agent]\ngrace = "60s"\n')

    def agents(self) -> list[RunningAgent]:
        """The agents started here that answer."""
        return list_agents()

    def end_agents(self) -> None:
        """End them, and see them gone."""
        for agent in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGTERM)
        wait_until(lambda: not self.agents(), 10, what="the end of the agents")

    def terminal(self, *arguments: str, columns: int = 80, lines: int = 24, term: str = "screen", **more: str) -> Tmux:
        """A terminal with the console in it; `more` goes into its environment."""
        command = [*PROGRAM, *arguments]
        return Tmux(command, columns=columns, lines=lines, term=term, environment={**self.environment, **more})

    def shell(self, *arguments: str, columns: int = 80, lines: int = 24) -> Tmux:
        """The console run by a shell that tells its exit code and how it left the terminal."""
        script = '"$@"; echo "code=$?"; stty -a; exec cat'
        command = ["sh", "-c", script, "sh", *PROGRAM, *arguments]
        return Tmux(command, columns=columns, lines=lines, term="screen", environment=self.environment)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    """A room whose agents are gone when the test is."""
    made = Room(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.end_agents()


def alive(pid: int) -> bool:
    """True while that process runs, zombies not counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
