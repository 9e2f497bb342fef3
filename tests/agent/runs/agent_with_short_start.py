"""An agent that waits 12 s for a command whose start hangs, not 35 s: `python -m MODULE record DSN`."""

from __future__ import annotations

import sys

from dba_console.agent.runs import commands
from tests.agent.runs.agent_command import command_or_agent

if __name__ == "__main__":
    setattr(commands, "START_TIMEOUT_S", 12.0 - commands.DISK_S)  # noqa: B010  # imported there by name
    sys.exit(command_or_agent("tests.agent.runs.agent_with_short_start"))
