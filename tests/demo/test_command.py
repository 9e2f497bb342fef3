"""The demo as a user runs it: by its command, with a terminal or without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import child_processes
from tests.background import wait_until
from tests.processes import mentioned_by
from tests.terminal.tmux import Tmux

DEMO = [sys.executable, "-m", "dba_console", "demo"]


@pytest.fixture
def own_directories(tmp_path: Path) -> dict[str, str]:
    """An environment whose agents, sessions and reports stay in the test's directory."""
    places = {"DBA_CONSOLE_RUNTIME": "run", "DBA_CONSOLE_SESSIONS": "sessions", "XDG_STATE_HOME": "state"}
    return {name: str(tmp_path / place) for name, place in places.items()}


def test_without_a_terminal_the_demo_records_then_prints_the_overview(own_directories: dict[str, str]) -> None:
    done = subprocess.run(
        [*DEMO, "--for", "2s"], env={**os.environ, **own_directories}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "primary" in done.stdout
    assert "of 247 usable" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(Path(own_directories["DBA_CONSOLE_SESSIONS"]).glob("*/session.db"))


@pytest.mark.terminal
def test_a_demo_for_a_given_time_ends_automatically(own_directories: dict[str, str]) -> None:
    with Tmux([*DEMO, "--for", "2s"], environment=own_directories) as terminal:
        assert terminal.wait_ended(timeout=90) == 0


@pytest.mark.terminal
def test_a_lost_terminal_ends_console_server_and_agent(own_directories: dict[str, str]) -> None:
    with Tmux(DEMO, environment=own_directories) as terminal:
        terminal.wait_for("of 247 usable", timeout=90)
        demo = terminal.pid
        commands = {child.pid: child.cmdline() for child in child_processes(demo)}
        servers = {pid: words for pid, words in commands.items() if words[0].endswith("/postgres")}
        (base,) = {Path(words[words.index("-D") + 1]).parent for words in servers.values()}
        assert mentioned_by(base)
        sockets = Path(own_directories["DBA_CONSOLE_RUNTIME"])
        assert list(sockets.glob("*.sock"))
        terminal.hang_up()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in [demo, *servers]), 90, what="the demo's end")
    wait_until(lambda: not list(sockets.glob("*.sock")), 90, what="the agent's end")
    wait_until(lambda: mentioned_by(base) == [], 90, what=f"the end of everything that mentions {base}")
    assert not base.exists()
