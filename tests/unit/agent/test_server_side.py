"""What is said of a server while nothing is heard of it."""

from __future__ import annotations

import socket

from dba_console.agent.server_side import PG_PARTS, ServerSide
from dba_console.clock import SYSTEM
from dba_console.probes.postgres.options import MonitorOptions
from dba_console.samples.sample import Part

TICK_S = 0.05


def test_a_server_that_never_let_us_in_is_no_silent_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        dsn = f"host=127.0.0.1 port={deaf.getsockname()[1]} user=x sslmode=disable gssencmode=disable"
        side = ServerSide(dsn, MonitorOptions(connect_timeout_s=0.3), SYSTEM, TICK_S)
        parts = first_parts(side)
    assert {part.name for part in parts} == set(PG_PARTS)
    assert {part.status for part in parts} == {"error"}
    assert side.outage is not None
    assert side.outage.kind == "timeout"
    assert side.outage.text.startswith("no connection within 0.3 s")


def first_parts(side: ServerSide) -> list[Part]:
    """What the first tick that says anything says."""
    while True:
        side.begin()
        if parts := side.finish(SYSTEM.mono_us() + int(TICK_S * 1e6)):
            return parts
