"""A console whose agent is killed starts the next one, however it was opened, and its run is resumed in place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.terminal.consoles import PROGRAM, Workspace, workspace
from tests.terminal.test_runbooks import answer, close_prompt, wait_for_question
from tests.terminal.tmux import LIMIT_S, Tmux

pytestmark = pytest.mark.terminal
__all__ = ["workspace"]

RUNBOOK = """\
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


def begin_on_other_console(workspace: Workspace, runbook: Path, dsn: str) -> str:
    """A run that waits for its start, without an attached console."""
    command = [*PROGRAM, "runbook", "run", str(runbook), "--dsn", dsn, "--plain"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, **workspace.environment},
    )  # fmt: skip
    assert done.returncode == 130, done
    found = re.search(r"the run (\S+) continues", done.stdout)
    assert found is not None, done
    return found[1]


def open_console(way: str, workspace: Workspace, runbook: Path, dsn: str) -> Tmux:
    """A console with an unfinished run, opened in that way."""
    if way == "run":
        return workspace.shell("runbook", "run", str(runbook), "--dsn", dsn, columns=120)
    run = begin_on_other_console(workspace, runbook, dsn)
    return workspace.shell(
        *{"resume": ("runbook", "resume", run), "attach": ("attach",), "console": (dsn,)}[way], columns=120
    )


@pytest.mark.parametrize("way", ["run", "resume", "attach", "console"])
def test_a_killed_agent_is_replaced_and_the_run_is_resumed_in_place(
    way: str, cluster: Cluster, workspace: Workspace, tmp_path: Path
) -> None:
    runbook = tmp_path / "killed-in-its-middle.md"
    runbook.write_text(RUNBOOK)
    with open_console(way, workspace, runbook, cluster.dsn(password="not-looked-at")) as terminal:
        if way in ("attach", "console"):
            terminal.wait_for("ANSWER NEEDED|killed-in-its-middle asks")
            terminal.keys("w")
        wait_for_question(terminal, "yes")
        (before,) = workspace.agents()
        assert "not-looked-at" not in before.conninfo
        os.kill(before.pid, signal.SIGKILL)
        terminal.wait_for(r"(?s)RUN INTERRUPTED: w.*R resume")
        (after,) = wait_until(workspace.agents, LIMIT_S, what="the next agent")
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


def test_an_unfinished_run_gives_the_exit_code_of_a_detached_one(
    cluster: Cluster, workspace: Workspace, tmp_path: Path
) -> None:
    runbook = tmp_path / "killed-in-its-middle.md"
    runbook.write_text(RUNBOOK)
    with workspace.shell("runbook", "run", str(runbook), "--dsn", cluster.dsn(), columns=120) as terminal:
        wait_for_question(terminal, "yes")
        close_prompt(terminal)
        terminal.keys("q")
        shown = terminal.wait_for("code=130")
        assert "continues until it needs an answer" in shown
    (agent,) = workspace.agents()
    os.kill(agent.pid, signal.SIGKILL)
    with workspace.shell("runbook", "resume", columns=120) as terminal:
        wait_for_question(terminal, "yes")
        close_prompt(terminal)
        terminal.keys("E")
        terminal.wait_for("because")
        terminal.type("enough")
        terminal.keys("Enter")
        terminal.wait_for("aborted")
        terminal.keys("q")
        terminal.wait_for("code=7")
