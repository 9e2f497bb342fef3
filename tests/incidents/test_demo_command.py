"""`dba-console demo --incident` as a user runs it: with a terminal, without, with an unknown name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dba_console.demo.incident_detection import recorded_verdict
from dba_console.demo.incidents.registry import find_incident
from tests.background import wait_until
from tests.terminal.tmux import Tmux

WAIT_S = 120.0
"""For whatever is waited for: the machine may have other things to do."""
DEMO = [sys.executable, "-m", "dba_console", "demo"]


@pytest.fixture
def own_directories(tmp_path: Path) -> dict[str, str]:
    """An environment whose agents, sessions and reports stay in the test's directory; four samples a second."""
    places = {"DBA_CONSOLE_RUNTIME": "run", "DBA_CONSOLE_SESSIONS": "sessions", "XDG_STATE_HOME": "state"}
    return {name: str(tmp_path / place) for name, place in places.items()} | {"DBA_CONSOLE_AGENT_INTERVAL": "250ms"}


def demo(*arguments: str, places: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], env={**os.environ, **places}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip


def test_without_a_terminal_it_prints_the_second_in_which_the_finding_was_raised(
    own_directories: dict[str, str],
) -> None:
    done = demo("--incident", "idle-in-transaction", "--for", "20s", places=own_directories)
    assert "incident begun: idle-in-transaction" in done.stderr
    assert "idle-in-transaction raised at" in done.stderr, done.stdout + done.stderr
    assert "another critical finding" not in done.stderr
    assert "Findings raised:" in done.stdout
    assert done.returncode == 0
    (session,) = Path(own_directories["DBA_CONSOLE_SESSIONS"]).iterdir()
    verdict = recorded_verdict(session, find_incident("idle-in-transaction"))
    assert verdict.detected is not None
    assert verdict.begun_us < verdict.detected.wall_us


@pytest.mark.terminal
def test_in_a_terminal_it_starts_after_a_while_and_a_console_left_in_a_runbook_leaves_no_agent(
    own_directories: dict[str, str],
) -> None:
    with Tmux([*DEMO, "--incident", "idle-in-transaction"], environment=own_directories) as terminal:
        terminal.wait_for("no lock waits", timeout=WAIT_S)
        terminal.wait_for("incident begun: idle-in-transaction", timeout=WAIT_S)
        terminal.wait_for(r"\d\d waiting", timeout=WAIT_S)
        terminal.wait_for(r"price-correction[^─]*wait for it", timeout=WAIT_S)
        terminal.keys("?")
        terminal.wait_for("select the next panel", timeout=WAIT_S)
        terminal.keys("Escape")
        terminal.wait_for(lambda screen: "select the next panel" not in screen and "waiting" in screen, timeout=WAIT_S)
        terminal.keys("b")
        terminal.wait_for("archive-failing", timeout=WAIT_S)
        terminal.keys("Enter")
        terminal.wait_for("s start", timeout=WAIT_S)
        terminal.keys("s")
        terminal.wait_for("ANSWER NEEDED", timeout=WAIT_S)
        terminal.keys("Escape")
        terminal.wait_for("enter answer", timeout=WAIT_S)
        (agent,) = Path(own_directories["DBA_CONSOLE_RUNTIME"]).glob("*.sock")
        terminal.keys("q")
        assert terminal.wait_ended(timeout=WAIT_S) == 0
        assert "idle-in-transaction raised at" in terminal.screen()
        wait_until(lambda: not agent.exists(), WAIT_S, what="the end of the agent")
