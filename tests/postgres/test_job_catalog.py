"""The database of a job is asked for what is in it, past all locks, and not where that would cost somebody a slot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.cluster import Cluster
from dba_console.probes.jobs.catalog import EVERY_US, FIRST_US, GROWTH, REFUSED_US, Catalog, Made
from dba_console.probes.jobs.peers import Peers
from tests.background import idle_sessions, session, wait_until
from tests.clocks import HeldClock
from tests.clusters import FreshCluster
from tests.postgres.bouncer import bouncer
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


def test_tables_and_what_was_made_of_them_are_told(shop: Cluster) -> None:
    seen = Catalog(shop.dsn(), DATABASE, made=True).look()
    assert seen.unknown is None and seen.database == DATABASE
    tables = {one.name: one for one in seen.tables}
    assert set(tables) == {ODD, "child", "seen"} and tables["seen"].view
    full = tables[ODD]
    assert (full.schema, full.rows, full.view) == ("public", 1000, False)
    assert full.bytes >= 500_000
    made = {(one.kind, one.table, one.valid) for one in seen.made}
    assert {("check", ODD, True), ("foreign key", "child", True), ("constraint", ODD, True)} <= made
    assert Made("index", "public", "child", "child_parent", True) in seen.made


@pytest.mark.pg(18)
def test_what_was_inserted_is_counted_and_locks_are_not_waited_for(shop: Cluster) -> None:
    catalog = Catalog(shop.dsn(), DATABASE, made=True)

    def inserted() -> dict[str, int]:
        seen = catalog.look()
        assert seen.unknown is None
        return {one.name: one.inserted for one in seen.tables}

    with session(shop, dbname=DATABASE) as restore:
        restore.execute("begin; lock table child in access exclusive mode; truncate child")
        # A session reports what it did within a second, or when it ends.
        wait_until(lambda: inserted()[ODD] == 1000, 60, what="the count of the rows inserted")
        assert inserted()["child"] == 0
        restore.execute("rollback")


@pytest.mark.pg(18)
def test_a_dump_is_not_told_what_a_restore_made(shop: Cluster) -> None:
    seen = Catalog(shop.dsn(), DATABASE, made=False).look()
    assert len(seen.tables) == 3 and seen.made == ()


def test_it_is_asked_seldom_and_after_a_refusal_more_seldom(cluster: Cluster) -> None:
    clock = HeldClock()
    ours, absent = Catalog(cluster.dsn(), "postgres", made=True, clock=clock), "not there"
    gone = Catalog(cluster.dsn(), absent, made=True, clock=clock)
    assert (ours.due, gone.due) == (True, True)
    assert ours.look().unknown is None
    refused = gone.look()
    assert absent in (refused.unknown or "") and refused.tables == ()
    clock.advance(EVERY_US / 1e6)
    assert (ours.due, gone.due) == (True, False)
    clock.advance(REFUSED_US / 1e6)
    assert (ours.due, gone.due) == (True, True)


def test_of_a_short_job_it_is_asked_more_often(cluster: Cluster) -> None:
    clock = HeldClock()
    catalog = Catalog(cluster.dsn(), "postgres", made=True, clock=clock)
    catalog.look()
    clock.advance(FIRST_US / 1e6)
    due = [catalog.due]
    clock.advance(EVERY_US / 1e6 * GROWTH)
    catalog.look()
    clock.advance(FIRST_US / 1e6)
    due.append(catalog.due)
    clock.advance(EVERY_US / 1e6)
    due.append(catalog.due)
    assert due == [True, False, True]


def test_none_of_the_last_slots_is_taken_for_it(reused_cluster: FreshCluster) -> None:
    server = reused_cluster({"max_connections": 8, "superuser_reserved_connections": 3})
    with idle_sessions(server, 5):
        seen = Catalog(server.dsn(), "postgres", made=True).look()
    assert seen.unknown == "the catalog of postgres was not asked: only reserved connection slots are left"


def test_a_password_in_the_connection_string_is_not_repeated(cluster: Cluster) -> None:
    for conninfo in ("host=/nowhere password='open sesame'", "no connection string password=open'sesame"):
        seen = Catalog(conninfo, "postgres", made=True).look()
        assert seen.unknown is not None and "sesame" not in seen.unknown


def test_through_a_pooler_nothing_is_asked_and_a_session_is_known_to_come_from_it(cluster: Cluster) -> None:
    with bouncer(cluster, "session", admin=False) as conninfo:
        seen = Catalog(conninfo, "postgres", made=True).look()
        assert seen.unknown is not None and "which lends sessions to others" in seen.unknown
        with psycopg.connect(conninfo) as through, session(cluster) as straight:
            row = through.execute("select pg_backend_pid()").fetchone()
            assert row is not None
            lent, own = int(str(row[0])), straight.info.backend_pid
            peers = Peers()
            assert peers.read([lent, own], [os.getpid()]) == {own: os.getpid()}
            assert Path(f"/proc/{peers.others[lent]}/comm").read_text() == "pgbouncer\n"
            assert peers.notes == {lent: f"session {lent} comes from pgbouncer (process {peers.others[lent]})"}
