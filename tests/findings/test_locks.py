"""Locks that are really waited for: queues behind a dump, transactions left open, and contention that is ordinary."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dba_console.demo.clients import Clients
from dba_console.demo.cluster import Cluster
from dba_console.limits import Limits
from dba_console.limits.locks import LockLimits
from tests.background import idle_in_transaction, session, wait_until, waiting_for_lock
from tests.conftest import FreshCluster
from tests.findings.eyes import eyes
from tests.findings.watching import now_us, seconds_since, watching

OURS = ("lock-queue", "dump-blocks", "lock-blocker", "idle-in-transaction", "wraparound-vacuum")
SOON = Limits(locks=LockLimits(blocker_s=0.5, blocker_many_s=0.5, queue_critical_least_s=0.5))


@pytest.fixture
def clients(fresh_cluster: FreshCluster) -> Iterator[tuple[Cluster, Clients]]:
    """A cluster with a table of some megabytes, and real clients of it."""
    cluster = fresh_cluster({"max_prepared_transactions": 5})
    cluster.psql("create table orders as select n as id, 'paid'::text as state from generate_series(1, 200000) n")
    made = Clients(cluster, "clients.log")
    yield cluster, made
    made.stop()


@contextmanager
def waiters(cluster: Cluster, count: int, sql: str, name: str = "web") -> Iterator[None]:
    """So many sessions that wait for a lock."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(waiting_for_lock(cluster, sql, name=name))
        yield


def stuck_dump(cluster: Cluster, clients: Clients) -> None:
    """A pg_dump whose output nobody reads: it stays in the middle of the table."""
    clients.start("pg_dump", "-d", cluster.dsn(), output=subprocess.PIPE)
    copies = "select 1 from pg_stat_activity where application_name = 'pg_dump' and wait_event = 'ClientWrite'"
    wait_until(lambda: cluster.psql(copies), what="the dump to wait for its reader")


def test_a_queue_behind_a_dump_is_told_within_five_seconds_as_one_finding(
    clients: tuple[Cluster, Clients], tmp_path: Path
) -> None:
    cluster, programs = clients
    with watching(cluster.dsn(), tmp_path) as seen:
        stuck_dump(cluster, programs)
        began_us = now_us()
        with (
            waiting_for_lock(cluster, "alter table orders add column note text", name="migration") as migration,
            waiters(cluster, 6, "select count(*) from orders"),
        ):
            told = seen.raised("lock-queue")
            row = seen.open("lock-queue", severity="critical", within_s=25)
            critical = seen.critical()
    assert 0 <= seconds_since(began_us, told) <= 5.0
    assert critical == {"lock-queue"}
    assert row.id == "lock-queue"
    assert row.text.startswith(f"6 sessions wait behind migration (pid {migration}: alter table orders add column note")
    assert "on public.orders" in row.text and "for the dump pg_dump (postgres, pid " in row.text
    assert row.runbook == "lock-queue"


def test_a_transaction_left_open_that_holds_rows_is_told_within_five_seconds(
    clients: tuple[Cluster, Clients], tmp_path: Path
) -> None:
    cluster, _ = clients
    update = "update orders set state = 'open' where id = 1"
    with watching(cluster.dsn(), tmp_path) as seen, ExitStack() as left:
        began_us = now_us()
        pid = left.enter_context(idle_in_transaction(cluster, update, name="price-correction"))
        left.enter_context(waiters(cluster, 6, update))
        told = seen.raised("idle-in-transaction")
        row = seen.open("idle-in-transaction")
    assert 0 <= seconds_since(began_us, told) <= 5.0
    assert row.id == "idle-in-transaction"
    assert row.text.startswith(f"price-correction (postgres, pid {pid}) is idle in transaction for ")
    assert "and 6 sessions wait behind it" in row.text
    assert row.text.endswith(f"last statement: {update}")
    assert seen.never_critical()


@pytest.mark.pg(14, 18)
def test_a_queue_behind_a_transaction_left_open_is_one_finding_on_every_version(server: Cluster) -> None:
    server.psql("create table parts (id int)")
    try:
        with (
            eyes(server.dsn(), *OURS, limits=SOON) as seen,
            idle_in_transaction(server, "select count(*) from parts", name="report") as pid,
            waiting_for_lock(server, "truncate parts", name="cleanup"),
            waiters(server, 4, "select count(*) from parts"),
        ):
            wait_until(lambda: _idle_for(server, pid, 2.1), what="two seconds of idleness")
            seen.until("idle-in-transaction", within_s=3)
            seen.tick(2)
            (row,) = seen.rows
            assert row.chain == ["lock-queue", "idle-in-transaction"]
            assert row.text.startswith("4 sessions wait behind cleanup (pid ")
            assert f"because report (postgres, pid {pid}) is idle in transaction" in row.text
    finally:
        server.psql("drop table parts")


def _idle_for(cluster: Cluster, pid: int, seconds: float) -> str:
    return cluster.psql(
        f"select 1 from pg_stat_activity where pid = {pid} and clock_timestamp() - state_change > '{seconds} s'"
    )


def test_ddl_alone_behind_a_dump_is_told_by_the_dump(clients: tuple[Cluster, Clients]) -> None:
    cluster, programs = clients
    stuck_dump(cluster, programs)
    with (
        eyes(cluster.dsn(), *OURS, limits=SOON) as seen,
        waiting_for_lock(cluster, "alter table orders add column note text", name="migration"),
    ):
        row = seen.until("dump-blocks", within_s=5)
    assert row.id == "dump-blocks"
    assert row.severity == "warning"
    assert "1 session waits for the dump pg_dump" in row.text


def test_a_session_at_work_that_holds_others_up_is_told_with_its_statement(clients: tuple[Cluster, Clients]) -> None:
    cluster, programs = clients
    statements = ("begin;", "lock table orders;", "select pg_sleep(600);")
    programs.psql(*statements, application="maintenance", dbname="postgres")
    wait_until(lambda: cluster.psql("select 1 from pg_stat_activity where wait_event = 'PgSleep'"))
    with eyes(cluster.dsn(), *OURS, limits=SOON) as seen, waiters(cluster, 2, "select count(*) from orders"):
        row = seen.until("lock-blocker", within_s=5)
    assert row.id == "lock-blocker"
    assert "2 sessions wait for maintenance (postgres, pid " in row.text
    assert "select pg_sleep(600)" in row.text and "public.orders" in row.text


def test_a_prepared_transaction_that_holds_others_up_is_told_by_its_name(clients: tuple[Cluster, Clients]) -> None:
    cluster, _ = clients
    with session(cluster) as preparing:
        preparing.execute("begin")
        preparing.execute("lock table orders")
        preparing.execute("prepare transaction 'order-4711'")
    try:
        with eyes(cluster.dsn(), *OURS, limits=SOON) as seen, waiters(cluster, 1, "select count(*) from orders"):
            row = seen.until("lock-blocker", within_s=15)
        assert "for the prepared transaction order-4711" in row.text
    finally:
        cluster.psql("rollback prepared 'order-4711'")


def test_a_role_that_sees_no_other_sessions_still_sees_the_queue(clients: tuple[Cluster, Clients]) -> None:
    cluster, _ = clients
    cluster.psql("create role weak login")
    with (
        eyes(cluster.dsn(user="weak"), *OURS, limits=SOON) as seen,
        idle_in_transaction(cluster, "select count(*) from orders", name="report") as pid,
        waiting_for_lock(cluster, "truncate orders", name="cleanup") as waiter,
        waiters(cluster, 4, "select count(*) from orders"),
    ):
        row = seen.until("lock-queue", within_s=5)
    assert row.text.startswith(f"4 sessions wait behind cleanup (pid {waiter}: AccessExclusiveLock) on ")
    assert row.text.endswith(f"for report (postgres, pid {pid})")
    assert "privilege" not in row.text


def test_contention_of_an_ordinary_load_is_no_finding(clients: tuple[Cluster, Clients], tmp_path: Path) -> None:
    """Twenty clients that all want the one row of pgbench_branches, as fast as they can."""
    cluster, programs = clients
    cluster.run("pgbench", "-i", "-q", "-s", "1", cluster.dsn())
    programs.pgbench("-c", "20", role="postgres", application="bench", dbname="postgres")
    with watching(cluster.dsn(), tmp_path) as seen:
        frame = seen.watch.until(lambda frame: (frame.locks.waiting or 0) > 5, what="contention")
        seen.calm(10)
        told = [event.text for rule in OURS for event in seen.news(rule)]
    assert frame.locks.waiting
    assert told == []
