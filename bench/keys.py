"""Time from a key to the first byte painted, with 1,000 sessions on the screen, over our own pseudo-terminal."""

from __future__ import annotations

import os
import select
import signal
import time

from bench.console import PROGRAM, own_directories
from bench.figure import Figure
from bench.ground import ground
from bench.pseudo_terminal import drain, spawn, wait_for

DOWN = b"\x1b[B"
SESSIONS = b"9"
IDLE_ONES = b"/pool\r"
"""Filter for the 1,000 idle sessions, whose rows do not move: the cursor follows its session, and an active one may be
last in the list a second later, where a key down paints nothing."""


def run(smoke: bool = False) -> list[Figure]:
    presses = 30 if smoke else 400
    with ground(1000) as here, own_directories():
        pid, terminal = spawn([PROGRAM, here.dsn])
        try:
            times = _measure(terminal, presses)
        finally:
            os.kill(pid, signal.SIGTERM)
            drain(terminal, 1.0)
            os.close(terminal)
            os.waitpid(pid, 0)
    times.sort()
    p99, p50 = times[int(len(times) * 0.99)] * 1000, times[len(times) // 2] * 1000
    return [Figure("key to paint, 1,000 rows, p99", p99, "ms", 50.0, f"median {p50:.1f} ms over {presses} keys")]


def _measure(terminal: int, presses: int) -> list[float]:
    wait_for(terminal, b"usable")
    os.write(terminal, SESSIONS)
    wait_for(terminal, b"pool")
    os.write(terminal, IDLE_ONES)
    wait_for(terminal, b"of 1000")
    drain(terminal, 2.0)
    times = []
    for number in range(presses):
        # Key presses cover all phases of the second, including the tick.
        drain(terminal, 0.08 + (number * 37 % 100) / 1000)
        pressed = time.monotonic()
        os.write(terminal, DOWN)
        select.select([terminal], [], [], 5.0)
        times.append(time.monotonic() - pressed)
    return times
