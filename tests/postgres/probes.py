"""A probe on a cluster, and its parts by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.statements import SERVER_PARTS
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.samples.sample import Part

EVERYTHING = tuple(SERVER_PARTS)
LONG_TIMEOUTS = MonitorOptions(
    statement_timeout_s=60.0, connect_timeout_s=60.0, answer_timeout_s=60.0, expensive_s=3600.0
)
"""Deadlines are the matter of the tests that name their own: the machine may have other things to do."""


@contextmanager
def connected(conninfo: str, options: MonitorOptions = LONG_TIMEOUTS) -> Iterator[PostgresProbe]:
    probe = PostgresProbe(conninfo, options)
    probe.connect()
    try:
        yield probe
    finally:
        probe.close()


@contextmanager
def connected_probe(
    cluster: Cluster, *, user: str = "postgres", dbname: str = "postgres", options: MonitorOptions = LONG_TIMEOUTS
) -> Iterator[PostgresProbe]:
    with connected(cluster.dsn(user=user, dbname=dbname), options) as probe:
        yield probe


def read(probe: PostgresProbe, *names: str, waiters: bool = False) -> dict[str, Part]:
    return {part.name: part for part in probe.read(names or EVERYTHING, waiters=waiters)}


def reading(probe: PostgresProbe, name: str, *, waiters: bool = False) -> Any:
    """The reading of one part, which must be there."""
    part = read(probe, name, waiters=waiters)[name]
    assert part.reading is not None, (part.status, part.note)
    return part.decode()
