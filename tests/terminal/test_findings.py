"""A finding on a real screen, from a real session left in its transaction: shown, opened, acknowledged, cleared."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import idle_in_transaction
from tests.terminal.consoles import OVERVIEW, Workspace, workspace
from tests.terminal.tmux import Tmux

pytestmark = pytest.mark.terminal
__all__ = ["workspace"]

LIMITS = """
[findings.connections]
idle_transaction_s = 1.0
idle_transaction_warning_s = 2.0
"""
"""A transaction is left open sooner than a test is over."""
SENTENCE = r"[!‼] \d\d:\d\d:\d\d  forgotten \(postgres, pid \d+\) is idle in transaction"
CLEARED = r"finding cleared after [\d.ms]+: idle-in-transaction"


@pytest.fixture
def short_limit_workspace(workspace: Workspace, tmp_path: Path) -> Workspace:
    """A workspace whose agents report a transaction left open for two seconds."""
    with (tmp_path / "config.toml").open("a") as file:
        file.write(LIMITS)
    return workspace


def unwrapped(screen: str) -> str:
    """The words of the screen on one line, as one reads them across line ends."""
    return re.sub(r"\s+", " ", screen)


def shows(words: str) -> Callable[[str], bool]:
    return lambda screen: words in unwrapped(screen)


def test_a_finding_is_shown_opened_acknowledged_and_cleared(cluster: Cluster, short_limit_workspace: Workspace) -> None:
    with short_limit_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        with idle_in_transaction(cluster, name="forgotten") as pid:
            terminal.wait_for(SENTENCE)
            terminal.keys("f")
            shown = unwrapped(terminal.wait_for(r"warning · idle-in-transaction"))
            assert f"pg_terminate_backend({pid})" in shown and "runbook: idle-in-transaction" in shown
            terminal.keys("Enter")
            shown = terminal.wait_for("around its start")
            assert "idle in transaction  1 ┤" in shown
            terminal.keys("a")
            terminal.type("ann calls its owner [b]")
            terminal.keys("Enter")
            shown = terminal.wait_for(shows("acknowledged by"))
            assert ": ann calls its owner [b]" in " ".join(shown.split())
            terminal.keys("Up")  # any key ends the notice that took the place of the keys
            terminal.wait_for("u undo")
        terminal.wait_for(r"─ Finding cleared at \d\d:\d\d:\d\d")
        assert "ann calls its owner" in terminal.screen()
        terminal.keys("Escape", "Escape")
        terminal.wait_for(CLEARED)


def test_stepping_back_in_a_recording_leads_to_the_finding(cluster: Cluster, short_limit_workspace: Workspace) -> None:
    with short_limit_workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        with idle_in_transaction(cluster, name="forgotten"):
            terminal.wait_for(SENTENCE)
        terminal.wait_for(CLEARED)
    with short_limit_workspace.terminal("replay", "last") as terminal:
        terminal.wait_for(r"REPLAY .* PAUSED")
        terminal.keys("End")
        terminal.wait_for(CLEARED)
        step_back_to_raised(terminal)
        terminal.keys("f", "Enter")
        shown = terminal.wait_for("around its start")
        assert "idle in transaction  1 ┤" in shown
        assert "a acknowledge" not in shown and "u undo" not in shown
        terminal.keys("a")
        terminal.wait_for("nothing can be added|this is the past")
        terminal.keys("End")
        terminal.wait_for(r"─ Finding cleared at")
        terminal.keys("Home")
        terminal.wait_for(r"─ Finding not open yet")


def step_back_to_raised(terminal: Tmux) -> None:
    """From event to event back until the finding stands on the screen."""
    while not re.search(SENTENCE, seen := terminal.screen()):
        terminal.type("[")
        terminal.wait_for(no_longer_shows(seen))


def no_longer_shows(seen: str) -> Callable[[str], bool]:
    return lambda screen: screen != seen


def test_names_with_terminal_escapes_do_not_affect_the_screen(
    cluster: Cluster, short_limit_workspace: Workspace
) -> None:
    attack = 'select txid_current() as "[red]wide 表[/]"'
    with (
        idle_in_transaction(cluster, attack, name="[b]表"),
        short_limit_workspace.terminal(cluster.dsn(), columns=60, lines=18) as terminal,
    ):
        terminal.wait_for(r"[!‼] .*is idle in")
        terminal.keys("f", "Enter")
        assert "[red]wide 表[/]" in unwrapped(terminal.wait_for("more lines"))
        terminal.keys("NPage", "NPage", "NPage")
        terminal.wait_for("events")
        terminal.keys("Escape")
        terminal.wait_for("enter evidence")
