"""A runbook run in a real terminal on a real server: begun, terminal lost, attached again, ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.terminal.consoles import OVERVIEW, Workspace, workspace
from tests.terminal.tmux import Tmux

pytestmark = pytest.mark.terminal
__all__ = ["workspace"]

RUNBOOK = """\
# Walk with me

```toml {runbook}
id = "walk-with-me"
[inputs.flag]
type = "path"
help = "the file it waits for"
```

Why: to be walked.

## Make a table that stays with its session

```sql {change undo=none confirm=type:target title="make it"}
create temporary table walked_with_me (n int)
```

## Count until told

```sh {run undo=none confirm=yes timeout=10m title="count"}
echo "first line"
until [ -e "$RB_flag" ]; do sleep 0.1; done
echo "last line"
```
"""


PRINTED = 'first line(?!")'
"""As the command prints it, and not as the question shows the command."""


def wait_for_question(terminal: Tmux, text: str) -> None:
    """Wait until the run asks for that text to be typed, wherever its sentence is broken."""
    terminal.wait_for(rf"(?i)type[\s│]+`{re.escape(text)}`")


def answer(terminal: Tmux, text: str) -> None:
    terminal.keys("Enter")
    terminal.type(text)
    terminal.keys("Enter")


def close_prompt(terminal: Tmux) -> None:
    """Close the prompt of the question."""
    terminal.keys("Escape")
    terminal.wait_for("enter answer")


def test_a_run_continues_without_its_terminal_and_is_shown_after_a_reattach(
    cluster: Cluster, workspace: Workspace, tmp_path: Path
) -> None:
    books, flag = tmp_path / "books", tmp_path / "flag"
    books.mkdir()
    (books / "walk-with-me.md").write_text(RUNBOOK)
    config = Path(workspace.environment["DBA_CONSOLE_CONFIG"])
    config.write_text(f'{config.read_text()}[runbooks]\npath = ["{books}"]\n')
    with workspace.terminal(cluster.dsn()) as terminal:
        terminal.wait_for(OVERVIEW)
        terminal.keys("b")
        terminal.wait_for("/ filter")
        terminal.keys("/")
        terminal.type("with-me")
        terminal.keys("Enter")
        terminal.wait_for("1 of ")
        terminal.keys("Enter")
        assert "Why: to be walked." in terminal.wait_for("s start")
        terminal.keys("s")
        terminal.wait_for(r"flag \(path\):")
        terminal.type(str(flag))
        terminal.keys("Enter")
        wait_for_question(terminal, "yes")
        terminal.keys("Enter", "Enter")
        terminal.wait_for("enter alone confirms nothing")
        answer(terminal, "yes")
        shown = terminal.wait_for("create temporary table walked_with_me")
        target = re.search(r"walk-with-me on (\S+) ·", shown)
        assert target is not None
        wait_for_question(terminal, target[1])
        answer(terminal, "another-server")
        terminal.wait_for("'another-server' is not")
        answer(terminal, target[1])
        terminal.wait_for("⧗ 2 Count")
        wait_for_question(terminal, "yes")
        answer(terminal, "yes")
        terminal.wait_for(PRINTED)
    with workspace.terminal("attach") as terminal:
        terminal.wait_for("walk-with-me runs")
        terminal.keys("w")
        terminal.wait_for(PRINTED)
        flag.touch()
        shown = terminal.wait_for(r"walk-with-me on \S+ · done")
        assert "operator" in shown
        terminal.keys("Tab", "Tab")
        assert "first line" in terminal.wait_for("last line")
