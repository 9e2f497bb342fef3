"""The space a restore still needs is computed from its own database, not from other writes to the same disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.following.database_catalog import MAX_PAUSE_US
from dba_console.jobs.following.job_estimate import DISK_ESTIMATE_NOTE, RestoreSpaceEstimate
from tests.clocks import HeldClock
from tests.sql import query

DATABASE = "takes room"
GB = 1 << 30


@pytest.fixture
def database(server: Cluster) -> Iterator[Cluster]:
    query(server, f'create database "{DATABASE}"')
    yield server
    query(server, f'drop database "{DATABASE}" with (force)')


def test_the_estimate_uses_the_database_growth_or_otherwise_the_disk(database: Cluster) -> None:
    clock = HeldClock()
    taking, blind = RestoreSpaceEstimate(database.dsn(), clock), RestoreSpaceEstimate(database.dsn(), clock)

    def need(of: RestoreSpaceEstimate, name: str, pct: float, free_gb: int) -> tuple[float | None, tuple[str, ...]]:
        return of.estimate(name, pct, free_gb * GB, running_s=60.0, begun_us=clock.mono_us())

    assert need(taking, DATABASE, 10.0, 90) == need(blind, "not there", 10.0, 90) == (None, ())
    query(database, "create table filled as select repeat('x', 1000) from generate_series(1, 8000)", dbname=DATABASE)
    clock.advance(MAX_PAUSE_US / 1e6)
    reported, message = need(taking, DATABASE, 60.0, 40)
    assert message == () and reported is not None and 8_000_000 * 0.8 <= reported <= 12_000_000
    assert need(taking, DATABASE, 61.0, 30) == (reported, ()), "until it is asked again"
    assert need(blind, "not there", 60.0, 40) == (40 * GB, (DISK_ESTIMATE_NOTE,))


def test_an_overdue_observation_sends_no_more_queries(cluster: Cluster) -> None:
    clock = HeldClock()
    taking, begun_us = RestoreSpaceEstimate(cluster.dsn(), clock), clock.mono_us()
    assert taking.estimate("postgres", 10.0, 90, running_s=60.0, begun_us=begun_us) == (None, ())
    clock.advance(MAX_PAUSE_US / 1e6)
    assert taking.estimate("postgres", 60.0, 40, running_s=80.0, begun_us=begun_us) == (40.0, (DISK_ESTIMATE_NOTE,))
