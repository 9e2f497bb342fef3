"""How a module of tests stands in for the command and for the agent that this becomes."""

from __future__ import annotations

import sys

from dba_console.agent import find_or_start


def command_or_agent(module: str) -> int:
    """With arguments the command, which turns itself into an agent by running `module`; without, that agent."""
    if len(sys.argv) > 1:
        from dba_console.__main__ import main

        find_or_start._COMMAND = [sys.executable, "-m", module]
        return main()
    from dba_console.agent.__main__ import main as agent

    return agent()
