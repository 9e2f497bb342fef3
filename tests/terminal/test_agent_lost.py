"""A console whose agent is killed starts the next one, however it was opened, and its run is resumed in place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from tests.background import wait_until
from tests.terminal.consoles import PROGRAM, Room, room
from tests.terminal.test_runbooks import answer, asked, read_on
from tests.terminal.tmux import LIMIT_S, Tmux

pytestmark = pytest.mark.terminal
__all__ = ["room"]

BOOK = """\
# Killed in its middle

```toml {runbook}
id = "killed-in-its-middle"
needs = ["server"]
```

Why: to be interrupted.

## Say it

```sh {run undo=none confirm=yes title="say it"}
echo "said at last"
```
"""


def begun_elsewhere(room: Room, book: Path, dsn: str) -> str:
    """A run that waits for its start, and that nobody sits at."""
    command = [*PROGRAM, "runbook", "run", str(book), "--dsn", dsn, "--plain"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, **room.environment},
    )  # fmt: skip
    assert done.returncode == 130, done
    found = re.search(r"the run (\S+) continues", done.stdout)
    assert found is not None, done
    return found[1]


def opened(way: str, room: Room, book: Path, dsn: str) -> Tmux:
    """A console with an unfinished run, opened in that way."""
    if way == "run":
        return room.shell("runbook", "run", str(book), "--dsn", dsn, columns=120)
    run = begun_elsewhere(room, book, dsn)
    return room.shell(
        *{"resume": ("runbook", "resume", run), "attach": ("attach",), "console": (dsn,)}[way], columns=120
    )


@pytest.mark.parametrize("way", ["run", "resume", "attach", "console"])
def test_a_killed_agent_is_replaced_and_the_run_is_resumed_in_place(
    way: str, cluster: Cluster, room: Room, tmp_path: Path
) -> None:
    book = tmp_path / "killed-in-its-middle.md"
    book.write_text(BOOK)
    with opened(way, room, book, cluster.dsn(password="not-looked-at")) as terminal:
        if way in ("attach", "console"):
            terminal.wait_for("ANSWER NEEDED|killed-in-its-middle asks")
            terminal.keys("w")
        asked(terminal, "yes")
        (before,) = room.agents()
        assert "not-looked-at" not in before.conninfo
        os.kill(before.pid, signal.SIGKILL)
        terminal.wait_for(r"(?s)RUN INTERRUPTED: w.*R resume")
        (after,) = wait_until(room.agents, LIMIT_S, what="the next agent")
        assert (after.key, after.target, after.pid != before.pid) == (before.key, before.target, True)
        terminal.keys("R")
        terminal.wait_for("unknown outcomes")
        terminal.type("yes")
        terminal.keys("Enter")
        terminal.wait_for(r"(?s)ANSWER NEEDED.*Start .Killed")
        answer(terminal, "yes")
        terminal.wait_for(r"(?s)ANSWER NEEDED.*echo")
        answer(terminal, "yes")
        terminal.wait_for(r"killed-in-its-middle on \S+ · done")
        terminal.keys("q")
        terminal.wait_for("code=0")


def test_an_unfinished_run_gives_the_exit_code_of_a_detached_one(cluster: Cluster, room: Room, tmp_path: Path) -> None:
    book = tmp_path / "killed-in-its-middle.md"
    book.write_text(BOOK)
    with room.shell("runbook", "run", str(book), "--dsn", cluster.dsn(), columns=120) as terminal:
        asked(terminal, "yes")
        read_on(terminal)
        terminal.keys("q")
        shown = terminal.wait_for("code=130")
        assert "continues until it needs an answer" in shown
    (agent,) = room.agents()
    os.kill(agent.pid, signal.SIGKILL)
    with room.shell("runbook", "resume", columns=120) as terminal:
        asked(terminal, "yes")
        read_on(terminal)
        terminal.keys("E")
        terminal.wait_for("because")
        terminal.type("enough")
        terminal.keys("Enter")
        terminal.wait_for("aborted")
        terminal.keys("q")
        terminal.wait_for("code=7")
