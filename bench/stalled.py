"""A terminal that is not read: the console stops painting, and no sample may be delayed by it."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

from bench.console import PROGRAM, own_directories, wait_for_agent
from bench.figure import Figure
from bench.ground import ground
from bench.pseudo_terminal import drain, spawn, wait_for
from dba_console.recording.recording import Recording


def run(smoke: bool = False) -> list[Figure]:
    seconds = 10 if smoke else 60
    with ground(200) as here, own_directories():
        pid, terminal = spawn([PROGRAM, here.dsn])
        try:
            wait_for(terminal, b"usable")
            drain(terminal, 1.0)
            agent = wait_for_agent()
            begun = time.time_ns() // 1000
            time.sleep(seconds)  # the pseudo-terminal fills up and blocks its writer
            ended = time.time_ns() // 1000
            gaps = _gaps(agent.session, begun, ended)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)
    return [
        Figure("longest pause between two samples while the terminal is stalled", max(gaps), "s", 1.5),
        Figure("samples missed while the terminal is stalled", max(0, seconds - 1 - len(gaps)), "samples", 0),
    ]


def _gaps(session: str | None, begun: int, ended: int) -> list[float]:
    """Return the seconds between successive samples of the recording in this time."""
    if session is None:
        raise RuntimeError("the agent does not record")
    recording = Recording.open(session)
    times = []
    at = recording.step(begun, +1)
    while at is not None and at <= ended:
        times.append(at)
        at = recording.step(at, +1)
    recording.close()
    return [(new - old) / 1e6 for old, new in pairwise(times)]
