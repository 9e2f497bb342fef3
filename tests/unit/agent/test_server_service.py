"""What is reported of a server that does not answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from dba_console.agent.server_service import PG_PARTS, ServerService
from dba_console.core.clock import SYSTEM
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.samples.sample import Part, make_part

TICK_S = 0.05


def test_a_server_that_never_admitted_us_is_not_a_silent_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        dsn = f"host=127.0.0.1 port={deaf.getsockname()[1]} user=x sslmode=disable gssencmode=disable"
        service = ServerService(dsn, MonitorOptions(connect_timeout_s=0.3), SYSTEM, TICK_S)
        parts = first_parts(service)
    assert {part.name for part in parts} == set(PG_PARTS)
    assert {part.status for part in parts} == {"error"}
    assert service.outage is not None
    assert service.outage.kind == "timeout"
    assert service.outage.text.startswith("no connection within 0.3 s")


class SlowConnection(PostgresProbe):
    """A connection whose answer has been read, and is handed over when it is let go."""

    connected = True

    def __init__(self) -> None:
        super().__init__("")
        self.let_go = threading.Event()

    def read(self, names: Sequence[str], *, waiters: bool) -> list[Part]:
        answered_us = SYSTEM.mono_us()
        self.let_go.wait(20)
        return [make_part(name, None, at_us=answered_us) for name in names]


def test_an_answer_after_its_tick_replaces_the_report_that_it_is_missing() -> None:
    service = ServerService("", MonitorOptions(), SYSTEM, TICK_S)
    service._probe = slow = SlowConnection()
    missing = first_parts(service)
    assert {part.status for part in missing} == {"timeout"}
    slow.let_go.set()
    assert service.attempted(SYSTEM.mono_us() + 20_000_000)
    answers = service.finish(SYSTEM.mono_us())
    assert {part.status for part in answers} == {"ok"}
    assert max(part.at_us for part in missing) < min(part.at_us for part in answers)


def first_parts(service: ServerService) -> list[Part]:
    """What the first tick that says anything says."""
    while True:
        service.begin(PG_PARTS)
        if parts := service.finish(SYSTEM.mono_us() + int(TICK_S * 1e6)):
            return parts
