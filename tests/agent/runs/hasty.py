"""An agent that waits 12 s for a command whose start hangs, not 35 s: `python -m tests.agent.runs.hasty record DSN`."""

from __future__ import annotations

import sys

from dba_console.agent import launch
from dba_console.agent.runs import commands


def live() -> int:
    """With arguments the command, which turns itself into the agent; without, that agent."""
    if len(sys.argv) > 1:
        from dba_console.__main__ import main

        launch._COMMAND = [sys.executable, "-m", "tests.agent.runs.hasty"]
        return main()
    from dba_console.agent.__main__ import main as agent

    return agent()


if __name__ == "__main__":
    setattr(commands, "START_S", 12.0 - commands.DISK_S)  # noqa: B010  # imported there by name
    sys.exit(live())
