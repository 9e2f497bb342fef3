"""CPU of the agent with 1,000 idle sessions, compared with 200."""

from __future__ import annotations

import time

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from bench.ground import ground
from bench.process import cost


def run(smoke: bool = False) -> list[Figure]:
    seconds = 5.0 if smoke else 60.0
    few, many = _cost(200, seconds), _cost(1000, seconds)
    text = f"{many:.1f} ms/s at 1,020 sessions, {few:.1f} ms/s at 220"
    return [Figure("CPU of agent and backend, 1,000 idle sessions against 200", many / few, "×", 3.0, text)]


def _cost(idle: int, seconds: float) -> float:
    with ground(idle) as here, own_directories(), recording_agent(here.dsn) as agent:
        time.sleep(3)
        return cost({"ours": [agent.pid, *here.pid_of("dba-console")]}, seconds)["ours"]
