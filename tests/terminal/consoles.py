"""Real consoles on a real server in a real terminal: directories of the test's own, agents ended with it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dba_console.agent.find_or_start import RunningAgent, list_agents
from dba_console.keeper.proc import start_ticks
from tests.background import wait_until
from tests.cli.console import BUSY_HOST
from tests.terminal.tmux import LIMIT_S, Tmux

PROGRAM = [sys.executable, "-m", "dba_console"]
LIVE = r"LIVE"
OVERVIEW = r"(?s)─ Connections .*(?<!NOT )LIVE|(?<!NOT )LIVE.*─ Connections "


class Workspace:
    """Directories for one test's sessions, sockets and reports."""

    def __init__(self, base: Path) -> None:
        self.sessions = base / "sessions"
        self.state = base / "state"
        self.environment: Mapping[str, str] = {
            "DBA_CONSOLE_SESSIONS": str(self.sessions),
            "DBA_CONSOLE_RUNTIME": str(base / "run"),
            "DBA_CONSOLE_CONFIG": str(base / "config.toml"),
            "XDG_STATE_HOME": str(self.state),
            "DBA_CONSOLE_AGENT_INTERVAL": "250ms",
        }
        (base / "config.toml").write_text('[agent]\ngrace = "60s"\n' + BUSY_HOST)

    def agents(self) -> list[RunningAgent]:
        """The agents started here that answer."""
        return list_agents()

    def end_agents(self) -> None:
        """End them and wait until they are gone."""
        for agent in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(agent.pid, signal.SIGTERM)
        wait_until(lambda: not self.agents(), LIMIT_S, what="the end of the agents")

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
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace for one test."""
    with open_workspace(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace with one agent, shared by the tests of a module that do not change it."""
    with open_workspace(tmp_path_factory.mktemp("shared")) as made:
        yield made


@contextlib.contextmanager
def open_workspace(base: Path) -> Iterator[Workspace]:
    """A workspace whose agents are ended after the block."""
    made = Workspace(base)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made
        made.end_agents()


def recorded_s(screen: str) -> int:
    """The seconds recorded so far by the header of that screen, 0 where it shows none."""
    found = re.search(r"rec (\d+):(\d\d):(\d\d)", screen)
    hours, minutes, seconds = map(int, found.groups()) if found else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds


def alive(pid: int) -> bool:
    """True while that process runs, zombies not counted."""
    return start_ticks(pid) is not None
