"""The demo as a user runs it: by its command, with a terminal or without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.postmaster import children_of
from tests.background import wait_until
from tests.terminal.tmux import Tmux

DEMO = [sys.executable, "-m", "dba_console", "demo"]


@pytest.fixture
def own_places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose agents, sessions and reports stay in the test's directory."""
    places = {"DBA_CONSOLE_RUNTIME": "run", "DBA_CONSOLE_SESSIONS": "sessions", "XDG_STATE_HOME": "state"}
    yield {name: str(tmp_path / place) for name, place in places.items()}


def test_without_a_terminal_the_demo_records_then_prints_the_overview(own_places: dict[str, str]) -> None:
    done = subprocess.run(
        [*DEMO, "--for", "3s"], env={**os.environ, **own_places}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "primary" in done.stdout
    assert "of 247 usable" in done.stdout
    assert "\x1b" not in done.stdout
    assert list(Path(own_places["DBA_CONSOLE_SESSIONS"]).glob("*/session.db"))


@pytest.mark.terminal
def test_in_a_terminal_the_demo_opens_the_console_and_q_ends_it(own_places: dict[str, str]) -> None:
    with Tmux(DEMO, environment=own_places) as terminal:
        terminal.wait_for("of 247 usable", timeout=60)
        terminal.keys("q")
        assert terminal.wait_ended(timeout=30) == 0


@pytest.mark.terminal
def test_a_demo_for_a_given_time_ends_by_itself(own_places: dict[str, str]) -> None:
    with Tmux([*DEMO, "--for", "2s"], environment=own_places) as terminal:
        assert terminal.wait_ended(timeout=60) == 0


@pytest.mark.terminal
def test_a_lost_terminal_ends_console_server_and_agent(own_places: dict[str, str]) -> None:
    with Tmux(DEMO, environment=own_places) as terminal:
        terminal.wait_for("of 247 usable", timeout=60)
        demo = terminal.pid
        servers = [pid for pid in children_of(demo) if "postgres" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert servers
        sockets = Path(own_places["DBA_CONSOLE_RUNTIME"])
        assert list(sockets.glob("*.sock"))
        terminal.hang_up()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in [demo, *servers]), 30, what="the demo's end")
    wait_until(lambda: not list(sockets.glob("*.sock")), 30, what="the agent's end")
