"""Commands that open the screen, in a real terminal."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from dba_console.demo.cluster import Cluster
from tests.cli.console import Console
from tests.terminal.tmux import Tmux

pytestmark = pytest.mark.terminal


def test_attach_shows_the_running_agent_and_leaves_it_running(console: Console, cluster: Cluster) -> None:
    with console.watching(cluster.dsn()) as agent:
        with Tmux(console.command("attach"), environment=console.environ()) as terminal:
            terminal.wait_for(r"\d+ of \d+ usable")
            terminal.keys("q")
            assert terminal.wait_ended() == 0
        assert agent.process.poll() is None
        assert len(console.run("attach", "--json").objects()) == 1


def test_attach_asks_which_of_two_agents_is_meant(console: Console, cluster: Cluster) -> None:
    cluster.psql("create database other")
    with ExitStack() as stack:
        stack.callback(cluster.psql, "drop database other")
        for name in ("postgres", "other"):
            stack.enter_context(console.watching(cluster.dsn(dbname=name)))
        with Tmux(console.command("attach"), environment=console.environ()) as terminal:
            terminal.wait_for(r"which\?")
            terminal.type("3")
            terminal.keys("Enter")
            assert terminal.wait_ended() == 2
            assert "answer with a number from 1 to 2" in terminal.screen()


def test_replay_opens_the_recording_at_the_time_asked_for(console: Console, cluster: Cluster) -> None:
    assert console.run("record", "--for", "2s", cluster.dsn()).code == 0
    with Tmux(console.command("replay", "last", "--at", "+1s"), environment=console.environ()) as terminal:
        terminal.wait_for(r"REPLAY 20\d\d-")
        terminal.keys("q")
        assert terminal.wait_ended() == 0


def test_doctor_knows_the_terminal_it_is_in(console: Console, cluster: Cluster) -> None:
    with Tmux(
        console.command("doctor", cluster.dsn()),
        columns=120,
        lines=80,
        environment=console.environ(COLORTERM="", NO_COLOR=""),
    ) as terminal:
        assert terminal.wait_ended() == 0
        shown = terminal.screen()
    assert "120×80" in shown
    assert "TERM=screen-256color: drawn with 256 colours" in shown
    assert "inside tmux" in shown
