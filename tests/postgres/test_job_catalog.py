"""The catalog of a job's database is read past all locks, and not where that would take a needed slot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.jobs.following.database_catalog import (
    GROWTH,
    MAX_PAUSE_US,
    MIN_PAUSE_US,
    RETRY_PAUSE_US,
    CatalogObject,
    CatalogReader,
)
from dba_console.jobs.following.session_matching import SessionProcesses
from tests.background import idle_sessions, session, wait_until
from tests.clocks import HeldClock
from tests.clusters import FreshCluster
from tests.postgres.pgbouncer import running_pgbouncer
from tests.sql import query

DATABASE = "shop of jobs"
ODD = 'Order "lines"\n2'


@pytest.fixture
def shop(server: Cluster) -> Iterator[Cluster]:
    query(server, f'drop database if exists "{DATABASE}" with (force)')
    query(server, f'create database "{DATABASE}"')
    quoted = ODD.replace('"', '""')
    query(
        server,
        f"create table \"{quoted}\" (id integer primary key, note text check (note <> ''));"
        f'create table child (id integer unique, parent integer references "{quoted}");'
        "create index child_parent on child (parent);"
        f"insert into \"{quoted}\" select i, repeat('x', 500) from generate_series(1, 1000) i; analyze;"
        "create materialized view seen as select 1 as one; create temp table not_this (i integer);",
        dbname=DATABASE,
    )
    yield server
    query(server, f'drop database "{DATABASE}" with (force)')


def test_tables_and_the_objects_created_on_them_are_reported(shop: Cluster) -> None:
    seen = CatalogReader(shop.dsn(), DATABASE, with_objects=True).query()
    assert seen.unknown is None and seen.database == DATABASE
    tables = {one.name: one for one in seen.tables}
    assert set(tables) == {ODD, "child", "seen"} and tables["seen"].is_view
    full = tables[ODD]
    assert (full.schema, full.rows, full.is_view) == ("public", 1000, False)
    assert full.size is not None and full.size >= 500_000
    made = {(one.kind, one.table, one.valid) for one in seen.objects}
    assert {("check", ODD, True), ("foreign key", "child", True), ("constraint", ODD, True)} <= made
    assert CatalogObject("index", "public", "child", "child_parent", True) in seen.objects


@pytest.mark.pg(18)
def test_inserted_rows_are_counted_without_waiting_for_locks(shop: Cluster) -> None:
    catalog = CatalogReader(shop.dsn(), DATABASE, with_objects=True)

    def inserted() -> dict[str, int]:
        seen = catalog.query()
        assert seen.unknown is None
        return {one.name: one.inserted for one in seen.tables}

    with session(shop, dbname=DATABASE) as restore:
        restore.execute("begin; lock table child in access exclusive mode; truncate child")
        # A session reports what it did within a second, or when it ends.
        wait_until(lambda: inserted()[ODD] == 1000, 60, what="the count of the rows inserted")
        assert inserted()["child"] == 0
        restore.execute("rollback")


@pytest.mark.pg(18)
def test_a_dump_is_not_given_the_objects_a_restore_created(shop: Cluster) -> None:
    seen = CatalogReader(shop.dsn(), DATABASE, with_objects=False).query()
    assert len(seen.tables) == 3 and seen.objects == ()


def test_the_catalog_is_queried_rarely_and_more_rarely_after_a_refusal(cluster: Cluster) -> None:
    clock = HeldClock()
    ours, absent = CatalogReader(cluster.dsn(), "postgres", with_objects=True, clock=clock), "not there"
    gone = CatalogReader(cluster.dsn(), absent, with_objects=True, clock=clock)
    assert (ours.is_due, gone.is_due) == (True, True)
    assert ours.query().unknown is None
    refused = gone.query()
    assert absent in (refused.unknown or "") and refused.tables == ()
    clock.advance(MAX_PAUSE_US / 1e6)
    assert (ours.is_due, gone.is_due) == (True, False)
    clock.advance(RETRY_PAUSE_US / 1e6)
    assert (ours.is_due, gone.is_due) == (True, True)


def test_the_catalog_is_queried_more_often_during_a_short_job(cluster: Cluster) -> None:
    clock = HeldClock()
    catalog = CatalogReader(cluster.dsn(), "postgres", with_objects=True, clock=clock)
    catalog.query()
    clock.advance(MIN_PAUSE_US / 1e6)
    due = [catalog.is_due]
    clock.advance(MAX_PAUSE_US / 1e6 * GROWTH)
    catalog.query()
    clock.advance(MIN_PAUSE_US / 1e6)
    due.append(catalog.is_due)
    clock.advance(MAX_PAUSE_US / 1e6)
    due.append(catalog.is_due)
    assert due == [True, False, True]


def test_none_of_the_last_slots_is_used_for_it(reused_cluster: FreshCluster) -> None:
    server = reused_cluster({"max_connections": 8, "superuser_reserved_connections": 3})
    with idle_sessions(server, 5):
        seen = CatalogReader(server.dsn(), "postgres", with_objects=True).query()
    assert seen.unknown == "the catalog of postgres was not queried: only reserved connection slots are left"


def test_a_password_in_the_connection_string_is_not_repeated(cluster: Cluster) -> None:
    for conninfo in ("host=/nowhere password='open sesame'", "no connection string password=open'sesame"):
        seen = CatalogReader(conninfo, "postgres", with_objects=True).query()
        assert seen.unknown is not None and "sesame" not in seen.unknown


def test_through_a_pooler_nothing_is_queried_and_a_session_is_attributed_to_it(cluster: Cluster) -> None:
    with running_pgbouncer(cluster, "session", admin=False) as conninfo:
        seen = CatalogReader(conninfo, "postgres", with_objects=True).query()
        assert seen.unknown is not None and "which shares sessions" in seen.unknown
        with psycopg.connect(conninfo) as through, session(cluster) as straight:
            row = through.execute("select pg_backend_pid()").fetchone()
            assert row is not None
            pooled, own = int(str(row[0])), straight.info.backend_pid
            peers = SessionProcesses()
            assert peers.read([pooled, own], [os.getpid()]) == {own: os.getpid()}
            assert Path(f"/proc/{peers.other_processes[pooled]}/comm").read_text() == "pgbouncer\n"
            assert peers.notes == {
                pooled: f"session {pooled} comes from pgbouncer (process {peers.other_processes[pooled]})"
            }
