"""Cost of the rules: their share of the agent's CPU, as reported by the agent over the same seconds."""

from __future__ import annotations

import time

from bench.console import own_directories, recording_agent
from bench.figure import Figure
from bench.ground import ground
from dba_console.agent.client import AgentClient
from dba_console.agent.find_or_start import RunningAgent
from dba_console.agent.protocol import SampleMessage
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.sample import decode_sample

SETTLED_S = 45.0
"""After the agent's start, and within the window of trends."""


def run(smoke: bool = False) -> list[Figure]:
    """Measure over a minute, with 220 sessions on a healthy server."""
    with ground(200, spare=60) as here, own_directories(), recording_agent(here.dsn) as agent:
        readings = _readings(agent, 6.0 if smoke else SETTLED_S + 75.0)
    settled = [reading for at_s, reading in readings if smoke or at_s >= SETTLED_S]
    first, last = settled[0], settled[-1]
    ticks = len(settled) - 1
    spent_us = (last.judged_us or 0) - (first.judged_us or 0)
    whole_us = last.cpu_us - first.cpu_us
    text = f"{spent_us / ticks / 1000:.2f} ms of {whole_us / ticks / 1000:.2f} ms per tick, {ticks} ticks"
    return [Figure("rules, share of the agent's CPU", 100 * spent_us / whole_us, "%", 5.0, text)]


def _readings(agent: RunningAgent, seconds: float) -> list[tuple[float, AgentHealth]]:
    """Return the part `self` of every sample, with the seconds since the first."""
    client = AgentClient.connect(agent.path, role="show")
    found: list[tuple[float, AgentHealth]] = []
    begun = time.monotonic()
    try:
        while time.monotonic() - begun < seconds:
            message = client.receive(5.0)
            if isinstance(message, SampleMessage):
                own = next((part for part in decode_sample(message.data).parts if part.name == "self"), None)
                reading = None if own is None else own.decode()
                if isinstance(reading, AgentHealth):
                    found.append((time.monotonic() - begun, reading))
    finally:
        client.close()
    return found
