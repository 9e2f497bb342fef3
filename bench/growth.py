"""CPU of the agent with 1,000 idle sessions, compared with 200."""

from __future__ import annotations

import time

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from bench.ground import ground
from bench.process import cost


def run(smoke: bool = False) -> list[Figure]:
    seconds, fewer, more = (5.0, 20, 50) if smoke else (60.0, 200, 1000)
    few, many = _cost(fewer, seconds), _cost(more, seconds)
    text = f"{many:.1f} ms/s at {more:,} idle sessions, {few:.1f} ms/s at {fewer}"
    return [Figure("CPU of agent and backend, 1,000 idle sessions against 200", many / few, "×", 3.0, text)]


def _cost(idle: int, seconds: float) -> float:
    with ground(idle) as here, own_directories(), recording_agent(here.dsn) as agent:
        time.sleep(3)
        return cost({"ours": [agent.pid, *here.pid_of("dba-console")]}, seconds)["ours"]
