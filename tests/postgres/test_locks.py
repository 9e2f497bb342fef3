"""Waiters and blockers, on real locks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import idle_in_transaction, waiting_for_lock
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import query


@pytest.fixture
def orders(server: Cluster) -> Iterator[Cluster]:
    query(server, "create table orders (n int primary key); insert into orders values (1)")
    yield server
    query(server, "drop table orders")


def test_without_waiters_the_reading_is_empty_and_sent_no_query(server: Cluster) -> None:
    with connected_probe(server) as probe:
        read(probe, "pg.activity", "pg.locks")
        before = probe.queries
        part = read(probe, "pg.activity", "pg.locks")["pg.locks"]
        asked = probe.queries - before
    assert part.status == "ok"
    assert (part.decode().waiters, part.decode().held) == ([], [])
    assert asked == 2  # activity and the clock


def test_a_waiter_of_this_tick_is_read_in_this_tick(orders: Cluster) -> None:
    with (
        idle_in_transaction(orders, "lock table orders in share mode", name="pg_dump") as holder,
        waiting_for_lock(orders, "alter table orders add column m int") as waiter,
        connected_probe(orders) as probe,
    ):
        parts = read(probe, "pg.activity", "pg.locks", waiters=False)
    locks, rows = parts["pg.locks"].decode(), parts["pg.activity"].decode().rows
    [wait] = locks.waiters
    assert (wait.pid, wait.blocked_by, wait.locktype) == (waiter, [holder], "relation")
    assert (wait.mode, wait.relation) == ("AccessExclusiveLock", "public.orders")
    assert wait.wait_start is not None
    assert [(held.pid, held.mode, held.relation) for held in locks.held] == [(holder, "ShareLock", "public.orders")]
    starts = {(row.pid, row.backend_start) for row in rows if row.pid in (waiter, holder)}
    assert {(one.pid, one.backend_start) for one in locks.sessions} == starts and len(starts) == 2


def test_a_wait_for_a_row_names_its_table(orders: Cluster) -> None:
    update = "update orders set n = n"
    with (
        idle_in_transaction(orders, update) as holder,
        waiting_for_lock(orders, update) as waiter,
        connected_probe(orders) as probe,
    ):
        [wait] = reading(probe, "pg.locks", waiters=True).waiters
    assert (wait.pid, wait.blocked_by, wait.locktype) == (waiter, [holder], "transactionid")
    assert wait.relation == "public.orders"


def test_a_relation_of_another_database_is_shown_as_its_oid(orders: Cluster) -> None:
    query(orders, "create database elsewhere")
    oid = query(orders, "select 'orders'::regclass::oid")
    with (
        idle_in_transaction(orders, "lock table orders"),
        waiting_for_lock(orders, "select * from orders"),
        connected_probe(orders, dbname="elsewhere") as probe,
    ):
        [wait] = reading(probe, "pg.locks", waiters=True).waiters
    query(orders, "drop database elsewhere")
    assert wait.relation == f"postgres/{oid}"


def test_a_prepared_transaction_is_a_blocker_with_pid_0(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_prepared_transactions": 2})
    query(cluster, "create table t (n int)")
    query(cluster, "begin; lock table t; prepare transaction 'left behind'")
    with waiting_for_lock(cluster, "select * from t"), connected_probe(cluster) as probe:
        parts = read(probe, "pg.locks", "pg.horizon", waiters=True)
        locks, horizon = parts["pg.locks"].decode(), parts["pg.horizon"].decode()
    query(cluster, "rollback prepared 'left behind'")
    assert locks.waiters[0].blocked_by == [0]
    assert [(held.pid, held.mode) for held in locks.held] == [(0, "AccessExclusiveLock")]
    assert horizon is not None


def test_a_locked_catalog_costs_names_and_not_the_panel(orders: Cluster) -> None:
    oid = query(orders, "select 'orders'::regclass::oid")
    with connected_probe(orders) as probe:
        read(probe, "pg.activity", "pg.locks", "pg.progress", waiters=True)
        with (
            idle_in_transaction(orders, "lock table orders"),
            waiting_for_lock(orders, "select * from orders"),
            idle_in_transaction(orders, "lock table pg_class in access exclusive mode"),
        ):
            parts = read(probe, "pg.activity", "pg.locks", "pg.progress", waiters=True)
    assert {name: part.note for name, part in parts.items() if part.status != "ok"} == {}
    assert f"postgres/{oid}" in {lock.relation for lock in parts["pg.locks"].decode().waiters}
