"""CPU and memory of agent and console compared with pg_activity, on the same server in the same seconds."""

from __future__ import annotations

import time

from bench.console import PROGRAM, own_directories, recording_agent, wait_for_agent
from bench.figure import Figure
from bench.ground import Ground, ground
from bench.peer import pg_activity
from bench.process import cost, resident_mb
from bench.terminal import Terminal


def run(smoke: bool = False) -> list[Figure]:
    """Measure the agent alone and the agent with a console, each against pg_activity with a refresh of 1 s."""
    seconds = 5.0 if smoke else 60.0
    with ground(200) as here, own_directories():
        alone, agent_mb = _alone(here, seconds)
        both, console_mb = _with_console(here, seconds)
    return [
        Figure(
            "agent and its backend, recording, CPU against pg_activity and its backend", alone[0], "×", 1.0, alone[1]
        ),
        Figure("agent and console and backend, CPU against pg_activity and its backend", both[0], "×", 2.0, both[1]),
        Figure("agent resident", agent_mb, "MB", 45.0),
        Figure("console resident", console_mb, "MB", 60.0),
    ]


def _peer(terminal: Terminal, here: Ground) -> list[int]:
    terminal.start([pg_activity(), "--refresh", "1", here.dsn])
    terminal.wait_for("Sessions:")
    return [terminal.pid(), *here.pid_of("pg_activity")]


def _alone(here: Ground, seconds: float) -> tuple[tuple[float, str], float]:
    with recording_agent(here.dsn) as agent, Terminal("peer") as terminal:
        peer = _peer(terminal, here)
        ours = [agent.pid, *here.pid_of("dba-console")]
        time.sleep(3)  # both have finished their start
        return _ratio(cost({"ours": ours, "peer": peer}, seconds)), resident_mb(agent.pid)


def _with_console(here: Ground, seconds: float) -> tuple[tuple[float, str], float]:
    with Terminal("ours") as screen, Terminal("peer") as terminal:
        screen.start([PROGRAM, here.dsn])
        screen.wait_for("usable")
        peer = _peer(terminal, here)
        ours = [wait_for_agent().pid, screen.pid(), *here.pid_of("dba-console")]
        time.sleep(3)
        return _ratio(cost({"ours": ours, "peer": peer}, seconds)), resident_mb(screen.pid())


def _ratio(spent: dict[str, float]) -> tuple[float, str]:
    text = f"{spent['ours']:.1f} ms/s against {spent['peer']:.1f} ms/s"
    return spent["ours"] / spent["peer"], text
