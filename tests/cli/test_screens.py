"""Commands that open the screen, in a real terminal."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from dba_console.demo.temporary_server import Cluster
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


def test_attach_asks_which_of_two_agents_to_use(console: Console, cluster: Cluster) -> None:
    cluster.psql("create database other")
    with ExitStack() as stack:
        stack.callback(cluster.psql, "drop database other")
        for name in ("postgres", "other"):
            stack.enter_context(console.watching(cluster.dsn(dbname=name)))
        with Tmux(console.command("attach"), environment=console.environ()) as terminal:
            terminal.wait_for(r"which agent\?")
            terminal.type("3")
            terminal.keys("Enter")
            assert terminal.wait_ended() == 2
            assert "enter a number from 1 to 2" in terminal.screen()


RUN_LATER = """\
# Seen later

```toml {runbook}
id = "seen-later"
```

Why: to be looked at in the recording.

## Say it

```sh {run undo=none confirm=yes title="say it"}
echo "said in the run"
```
"""


def test_a_replay_shows_the_runs_as_they_were_and_offers_no_change(console: Console, cluster: Cluster) -> None:
    book = console.home / "seen-later.md"
    book.write_text(RUN_LATER)
    with console.watching(cluster.dsn()) as agent:
        confirmed = ("--confirm", "start=yes", "--confirm", "say-it=yes")
        assert console.run("runbook", "run", str(book), "--dsn", cluster.dsn(), *confirmed, timeout=120).code == 0
        (run,) = console.run("runbook", "runs", "last", "--json").objects()
        agent.until(lambda frame: frame.at_us > run["ended_us"] + 500_000, "a sample after the run")
    asked = next(one["wall_us"] for one in run["records"] if one["kind"] == "block.asked" and one.get("block"))
    moment = datetime.fromtimestamp((asked + 1) / 1e6, UTC).isoformat()
    with Tmux(
        console.command("replay", "last", "--at", moment), columns=120, environment=console.environ()
    ) as terminal:
        terminal.wait_for("seen-later asks")
        terminal.keys("w")
        shown = terminal.wait_for(r"(?s)seen-later on \S+ · step 1 of 1 · waiting.*this is a recording")
        assert "take over" not in shown and "said in the run" not in shown.replace('echo "said in the run"', "")
        terminal.keys("End")
        terminal.wait_for(r"(?s)seen-later on \S+ · done")
        terminal.keys("b")
        terminal.wait_for("connection-storm")
        terminal.keys("Enter")
        shown = terminal.wait_for("· archive-failing ──")
        assert "esc back" in shown and "s start" not in shown and "t rehearse" not in shown


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
