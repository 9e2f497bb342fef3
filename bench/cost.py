"""CPU and memory of agent and console compared with pg_activity, on the same server in the same seconds."""

from __future__ import annotations

import os
import time
from statistics import median

from bench.console import PROGRAM, own_directories, recording_agent, wait_for_agent
from bench.figure import Figure
from bench.ground import Ground, Load, ground
from bench.peer import pg_activity
from bench.process import cost, resident_mb
from bench.terminal import Terminal

WINDOWS = int(os.environ.get("COST_WINDOWS", "5"))
"""Windows of a minute under the calm load, of which the median ratio counts: little is spent, so one varies much."""
_SPARE: dict[Load, int] = {"busy": 30, "calm": 60}
"""Free connection slots. On the calm server 80 % are used, which no finding reports."""

Measured = tuple[float, str]
"""A ratio, and what it was computed from."""


def run(smoke: bool = False) -> list[Figure]:
    """Measure the agent alone and the agent with a console, each against pg_activity with a refresh of 1 s."""
    busy = [] if smoke else _figures("busy", 1, 60.0)
    return [*busy, *(_figures("calm", 1, 5.0) if smoke else _figures("calm", WINDOWS, 60.0))]


def _figures(load: Load, windows: int, seconds: float) -> list[Figure]:
    with ground(200, _SPARE[load], load) as here, own_directories():
        alone, agent_mb = _alone(here, seconds, windows)
        both, console_mb = _with_console(here, seconds, windows)
    if load == "calm":
        return [
            Figure(
                "calm server: agent and its backend, CPU against pg_activity and its backend",
                alone[0],
                "×",
                1.0,
                alone[1],
            ),
            Figure(
                "calm server: agent and console and backend against pg_activity and its backend",
                both[0],
                "×",
                1.0,
                both[1],
            ),
        ]
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


def _alone(here: Ground, seconds: float, windows: int) -> tuple[Measured, float]:
    with recording_agent(here.dsn) as agent, Terminal("peer") as terminal:
        peer = _peer(terminal, here)
        ours = [agent.pid, *here.pid_of("dba-console")]
        return _measure(ours, peer, seconds, windows), resident_mb(agent.pid)


def _with_console(here: Ground, seconds: float, windows: int) -> tuple[Measured, float]:
    with Terminal("ours") as screen, Terminal("peer") as terminal:
        screen.start([PROGRAM, here.dsn])
        screen.wait_for("usable")
        peer = _peer(terminal, here)
        ours = [wait_for_agent().pid, screen.pid(), *here.pid_of("dba-console")]
        return _measure(ours, peer, seconds, windows), resident_mb(screen.pid())


def _measure(ours: list[int], peer: list[int], seconds: float, windows: int) -> Measured:
    """Return the median of the windows' ratios, and the medians of the times."""
    time.sleep(3)  # both have finished their start
    spent = [cost({"ours": ours, "peer": peer}, seconds) for _ in range(windows)]
    ratios = sorted(one["ours"] / one["peer"] for one in spent)
    text = f"{median(one['ours'] for one in spent):.1f} ms/s against {median(one['peer'] for one in spent):.1f} ms/s"
    if windows > 1:
        text += f"; median of {windows} minutes, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    return median(ratios), text
