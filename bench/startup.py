"""Time from the command to the first data on the screen, in tmux, against pg_activity; medians of alternating runs."""

from __future__ import annotations

import statistics

from bench.console import PROGRAM, end_agents, own_directories
from bench.figure import Figure
from bench.ground import ground
from bench.peer import pg_activity
from bench.terminal import Terminal


def run(smoke: bool = False) -> list[Figure]:
    rounds = 2 if smoke else 15
    fresh, attached, peer = [], [], []
    with ground(200) as here, own_directories(), Terminal("start") as terminal:
        for _ in range(rounds):
            peer.append(_time(terminal, [pg_activity(), "--refresh", "1", here.dsn], "Sessions:"))
            end_agents()
            fresh.append(_time(terminal, [PROGRAM, here.dsn], "of 247 usable"))
            attached.append(_time(terminal, [PROGRAM, here.dsn], "of 247 usable"))
    theirs = statistics.median(peer)
    return [
        _figure("command to first data, agent not running", fresh, theirs, 1.5),
        _figure("command to first data, attaching", attached, theirs, 1.2),
    ]


def _time(terminal: Terminal, command: list[str], text: str) -> float:
    """Return the seconds until `text` is on the screen, which the program clears at its start."""
    begun = terminal.start(command)
    return terminal.wait_for(text) - begun


def _figure(name: str, ours: list[float], theirs: float, goal: float) -> Figure:
    median = statistics.median(ours)
    return Figure(name, median / theirs, "×", goal, f"{median * 1000:.0f} ms against {theirs * 1000:.0f} ms")
