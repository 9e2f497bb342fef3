"""A runbook begun at a terminal: on the screen, or as lines of text that ask, hide secrets, and may be left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.terminal.consoles import Workspace, workspace

pytestmark = pytest.mark.terminal
__all__ = ["workspace"]

RUNBOOK = """\
# Say a word

```toml {runbook}
id = "say-a-word"
[inputs.word]
type = "text"
default = "hello"
help = "what is said"
[inputs.key]
type = "secret"
help = "what nobody may read"
```

Why: to be said.

## Say it

```sh {run undo=none confirm=type:target title="say"}
echo "$RB_word" "${RB_key:+with a secret}"
```
"""


@pytest.fixture
def runbook_file(tmp_path: Path) -> str:
    path = tmp_path / "say-a-word.md"
    path.write_text(RUNBOOK)
    return str(path)


def test_a_line_mode_run_asks_and_is_answered_at_a_terminal(
    cluster: Cluster, workspace: Workspace, runbook_file: str
) -> None:
    arguments = ("runbook", "run", runbook_file, "--dsn", cluster.dsn(), "--plain")
    with workspace.shell(*arguments, columns=100, lines=50) as terminal:
        terminal.wait_for(r"word - what is said \[hello\]:")
        terminal.keys("Enter")
        terminal.wait_for("key - what nobody may read:")
        terminal.type("hunter2")
        terminal.keys("Enter")
        terminal.wait_for("type `yes` >")
        terminal.keys("Enter")  # answers nothing
        terminal.type("yes")
        terminal.keys("Enter")
        screen = terminal.wait_for(r"type `postgres\S+` >")
        terminal.type(re.findall(r"type `(\S+)` >", screen)[-1])
        terminal.keys("Enter")
        screen = terminal.wait_for(r"code=\d+")
        assert "SAYAWORD: hello with a secret" in screen
        assert "code=0" in screen and "hunter2" not in screen
        terminal.wait_for(r"iexten echo ")  # the terminal is as it was


def test_an_interrupt_detaches_from_the_run_and_says_how_to_return(
    cluster: Cluster, workspace: Workspace, runbook_file: str
) -> None:
    arguments = ("runbook", "run", runbook_file, "--dsn", cluster.dsn(), "--plain", "--input", "word=salve")
    with workspace.terminal(*arguments, columns=100, lines=50) as terminal:
        terminal.wait_for("key - what nobody may read:")
        terminal.type("hunter2")
        terminal.keys("Enter")
        terminal.wait_for("type `yes` >")
        terminal.keys("C-c")
        assert terminal.wait_ended() == 130
        screen = terminal.screen()
        assert re.search(r"runbook resume\s+\d+T\d+Z-say-a-word", screen) and "continues" in screen


def test_a_run_started_at_a_terminal_is_shown_on_the_screen(
    cluster: Cluster, workspace: Workspace, runbook_file: str
) -> None:
    arguments = ("runbook", "run", runbook_file, "--dsn", cluster.dsn(), "--input", "word=salve")
    with workspace.terminal(*arguments, columns=120, lines=40) as terminal:
        terminal.wait_for("key - what nobody may read:")
        terminal.type("hunter2")
        terminal.keys("Enter")
        screen = terminal.wait_for("Start “Say a word” on")
        assert "hunter2" not in screen
        terminal.keys("C-c")
