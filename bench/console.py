"""Start and find the console's processes for a measurement, in temporary directories."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.agent.find_or_start import RunningAgent, list_agents
from dba_console.keeper.proc import start_ticks

PROGRAM = str(Path(sys.executable).parent / "dba-console")


@contextmanager
def own_directories() -> Iterator[Path]:
    """Put sessions, sockets and configuration into a temporary directory; end remaining agents at exit."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        os.environ["DBA_CONSOLE_RUNTIME"] = f"{place}/run"
        os.environ["DBA_CONSOLE_SESSIONS"] = f"{place}/sessions"
        os.environ["XDG_CONFIG_HOME"] = f"{place}/config"
        os.environ["XDG_STATE_HOME"] = f"{place}/state"
        try:
            yield Path(place)
        finally:
            end_agents()


def end_agents() -> None:
    """End all agents of this measurement and wait for their exit."""
    for agent in list_agents():
        os.kill(agent.pid, 15)
        while start_ticks(agent.pid) is not None:
            time.sleep(0.01)


@contextmanager
def recording_agent(dsn: str) -> Iterator[RunningAgent]:
    """Run a recording agent without a console."""
    process = subprocess.Popen(
        [PROGRAM, "record", dsn], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield wait_for_agent()
    finally:
        process.terminate()
        process.wait(20)


def wait_for_agent(limit_s: float = 20.0) -> RunningAgent:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if agents := list_agents():
            return agents[0]
        time.sleep(0.05)
    raise TimeoutError("no agent started in time")
