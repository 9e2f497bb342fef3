"""Actions that act on the nodes of a cluster, for tests: each line of a file stands for a node's state.

`python -m tests.agent.runs.nodes` is the command that knows them, and the agent it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from dba_console.actions import registry
from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from tests.agent.runs.agent_command import command_or_agent

NODE_STEP = "node-step"


class LineSettings(Struct, forbid_unknown_fields=True, frozen=True):
    what: str
    """Line it writes."""
    file: str
    """Where it writes it; beside it `NAME.undo` says whose undo fails."""
    cluster: str = ""


class NodeStep(Action):
    """Writes a line; its undo writes another."""

    name: ClassVar[str] = NODE_STEP
    summary: ClassVar[str] = "Write a line."
    Settings: ClassVar[type[Struct]] = LineSettings
    needs_server: ClassVar[bool] = False
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True
    acts_on_cluster: ClassVar[bool] = True

    def preview(self, settings: LineSettings, context: ActionContext) -> ActionPreview:
        return ActionPreview(text=f"{settings.what} the node", exact=f"write {settings.what}", name=settings.what)

    def act(
        self, settings: LineSettings, action_preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        _write(settings.file, settings.what)
        return ActionResult(state="ok", text="written", undo={"what": settings.what})

    def settle(self, settings: LineSettings, action_preview: ActionPreview, context: ActionContext) -> ActionResult:
        if settings.what in _lines(settings.file):
            return ActionResult(state="ok", text="the line is there", undo={"what": settings.what})
        return ActionResult(state="failed", text="the line is not there", again=True)

    def undo(
        self, settings: LineSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        if settings.what in _lines(settings.file + ".undo"):
            return ActionResult(state="failed", text=f"{settings.what} cannot be reverted")
        _write(settings.file, f"not {data['what']}")
        return ActionResult(state="ok", text="reverted")


def _write(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def register() -> None:
    """Make the action known to this process."""
    registry._CLASS_PATHS[NODE_STEP] = "tests.agent.runs.nodes:NodeStep"


NODES_RUNBOOK = """# Nodes

```toml {runbook}
id = "nodes"
[inputs.file]
type = "path"
[inputs.to]
type = "text"
```

Why and when.

## Freeze

```toml {action node-step confirm=ack}
what = "freeze"
file = "%(file)s"
```

## Stop

```toml {action node-step confirm=yes}
what = "stop"
file = "%(file)s"
```

## Promote {point_of_no_return}

```toml {action node-step confirm=type:"%(to)s" undo=none}
what = "promote"
file = "%(file)s"
```

## Thaw

```toml {action node-step confirm=ack}
what = "thaw"
file = "%(file)s"
```
"""
"""Four acts on nodes, the third of which cannot be taken back."""

if __name__ == "__main__":
    register()
    sys.exit(command_or_agent("tests.agent.runs.nodes"))
