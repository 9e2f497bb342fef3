"""Locks that are really waited for: queues behind a dump, transactions left open, and contention that is ordinary."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from dba_console.demo.clients import Clients
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.idle_transactions import IdleTransactionLimits
from dba_console.watch.locks.rules import LockLimits
from dba_console.watch.samples.postgres import Locks
from tests.background import idle_in_transaction, session, wait_until
from tests.clusters import FreshCluster
from tests.findings.collector import LocalAgent, local_agent
from tests.sql import LIMIT_S, query, wait_for

READ = "select count(*) from orders"
RULES = ("lock-queue", "dump-blocks", "lock-blocker", "idle-in-transaction", "wraparound-vacuum")
SHORT_LIMITS = Limits(
    IdleTransactionLimits(idle_transaction_blocks_s=0.5),
    LockLimits(blocker_s=0.5, blocker_many_s=0.5, queue_critical_least_s=0.5, queue_long_s=0.5),
)


@pytest.fixture
def clients(reused_cluster: FreshCluster) -> Iterator[tuple[Cluster, Clients]]:
    """A cluster with a table of some megabytes, more than a pipe and sockets hold, and real clients of it."""
    cluster = reused_cluster({"max_prepared_transactions": 5})
    rows = "select n as id, 'paid'::text as state, repeat('x', 200) as note from generate_series(1, 30000) n"
    query(cluster, f"create table orders as {rows}")
    made = Clients(cluster, "clients.log")
    yield cluster, made
    made.stop()


@contextmanager
def waiters(cluster: Cluster, count: int, sql: str, name: str = "web") -> Iterator[list[int]]:
    """`count` sessions that wait for a lock; gives their process ids. They are cancelled at the end."""
    with ExitStack() as stack:
        waiting = [stack.enter_context(closing(session(cluster, name=name))) for _ in range(count)]
        for each in waiting:
            stack.callback(each.cancel_safe)
            each.pgconn.send_query(sql.encode())
        pids = [each.info.backend_pid for each in waiting]
        held = f"select count(*) = {count} from pg_stat_activity where pid = any (array{pids}) and wait_event_type"
        wait_for(cluster, f"{held} = 'Lock'", what=f"{count} of {name} waiting for a lock")
        yield pids


@contextmanager
def waiter(cluster: Cluster, sql: str, name: str) -> Iterator[int]:
    """A session that waits for a lock; gives its process id."""
    with waiters(cluster, 1, sql, name) as [pid]:
        yield pid


def stuck_dump(cluster: Cluster, clients: Clients) -> None:
    """A pg_dump whose output is not read: it stops in the middle of the table."""
    clients.start("pg_dump", "-d", cluster.dsn(), output=subprocess.PIPE)
    copies = "select 1 from pg_stat_activity where application_name = 'pg_dump' and wait_event = 'ClientWrite'"
    wait_for(cluster, copies, what="the dump to wait for its reader")


def test_a_queue_behind_a_dump_is_reported_within_five_seconds_as_one_finding(clients: tuple[Cluster, Clients]) -> None:
    cluster, programs = clients
    with local_agent(cluster.dsn(), *RULES, limits=SHORT_LIMITS) as agent:
        stuck_dump(cluster, programs)
        with (
            waiter(cluster, "alter table orders add column remark text", name="migration") as migration,
            waiters(cluster, 6, READ),
        ):
            agent.until("lock-queue", within_s=5)
            wait_for(cluster, has_lasted(migration, 0.5))
            row = agent.until("lock-queue", severity="critical", within_s=5)
    assert agent.ids("critical") == {"lock-queue"}
    assert row.id == "lock-queue"
    assert row.text.startswith(
        f"6 sessions wait behind migration (pid {migration}: alter table orders add column remark"
    )
    assert "on public.orders" in row.text and "for the dump pg_dump (postgres, pid " in row.text
    assert row.runbook == "lock-queue"


def has_lasted(pid: int, seconds: float) -> str:
    """Whether a session has been in its state for longer, by the server's clock."""
    return f"select 1 from pg_stat_activity where pid = {pid} and clock_timestamp() - state_change > '{seconds} s'"


def test_an_idle_transaction_that_holds_rows_is_reported_after_two_idle_seconds(
    clients: tuple[Cluster, Clients],
) -> None:
    cluster, _ = clients
    update = "update orders set state = 'open' where id = 1"
    with local_agent(cluster.dsn(), *RULES) as agent, ExitStack() as left:
        pid = left.enter_context(idle_in_transaction(cluster, update, name="price-correction"))
        left.enter_context(waiters(cluster, 6, update))
        wait_for(cluster, has_lasted(pid, 2.1))
        row = agent.until("idle-in-transaction", within_s=3)
    assert row.id == "idle-in-transaction"
    assert row.text.startswith(f"price-correction (postgres, pid {pid}) is idle in transaction for ")
    assert "and 6 sessions wait for it" in row.text
    assert row.text.endswith(f"last statement: {update}")
    assert agent.ids("critical") == set()


@pytest.mark.pg(14, 18)
def test_a_queue_behind_an_idle_transaction_is_one_finding_on_every_version(server: Cluster) -> None:
    query(server, "create table parts (id int)")
    try:
        with (
            local_agent(server.dsn(), *RULES, limits=SHORT_LIMITS) as agent,
            idle_in_transaction(server, "select count(*) from parts", name="report") as pid,
            waiter(server, "truncate parts", name="cleanup"),
            waiters(server, 4, "select count(*) from parts"),
        ):
            wait_for(server, has_lasted(pid, 0.6))
            agent.until("idle-in-transaction", within_s=3)
            agent.tick(2)
            (row,) = agent.rows
            assert row.chain == ["lock-queue", "idle-in-transaction"]
            assert row.text.startswith("4 sessions wait behind cleanup (pid ")
            assert f"because report (postgres, pid {pid}) is idle in transaction" in row.text
    finally:
        query(server, "drop table parts")


def test_ddl_alone_behind_a_dump_is_reported_with_the_dump(clients: tuple[Cluster, Clients]) -> None:
    cluster, programs = clients
    stuck_dump(cluster, programs)
    with (
        local_agent(cluster.dsn(), *RULES, limits=SHORT_LIMITS) as agent,
        waiter(cluster, "alter table orders add column remark text", name="migration") as pid,
    ):
        wait_for(cluster, has_lasted(pid, 0.6))
        row = agent.until("dump-blocks", within_s=5)
    assert row.id == "dump-blocks"
    assert row.severity == "warning"
    assert "1 session waits for the dump pg_dump" in row.text


def test_an_active_blocker_is_reported_with_its_statement(clients: tuple[Cluster, Clients]) -> None:
    cluster, programs = clients
    statements = ("begin;", "lock table orders;", "select pg_sleep(600);")
    programs.psql(*statements, application="maintenance", dbname="postgres")
    wait_for(cluster, "select 1 from pg_stat_activity where wait_event = 'PgSleep'")
    with local_agent(cluster.dsn(), *RULES, limits=SHORT_LIMITS) as agent, waiters(cluster, 2, READ) as pids:
        wait_for(cluster, has_lasted(pids[1], 0.6))
        row = agent.until("lock-blocker", within_s=5)
    assert row.id == "lock-blocker"
    assert "2 sessions wait for maintenance (postgres, pid " in row.text
    assert "select pg_sleep(600)" in row.text and "public.orders" in row.text


def test_a_prepared_transaction_that_blocks_others_is_reported_by_its_name(clients: tuple[Cluster, Clients]) -> None:
    cluster, _ = clients
    with session(cluster) as preparing:
        preparing.execute("begin")
        preparing.execute("lock table orders")
        preparing.execute("prepare transaction 'order-4711'")
    try:
        with local_agent(cluster.dsn(), *RULES, limits=SHORT_LIMITS) as agent, waiter(cluster, READ, "web") as pid:
            wait_for(cluster, has_lasted(pid, 0.6))
            row = agent.until("lock-blocker", within_s=15)
        assert "for the prepared transaction order-4711" in row.text
    finally:
        query(cluster, "rollback prepared 'order-4711'")


def test_a_role_that_sees_no_other_sessions_still_sees_the_queue(clients: tuple[Cluster, Clients]) -> None:
    cluster, _ = clients
    query(cluster, "create role weak login")
    with (
        local_agent(cluster.dsn(user="weak"), *RULES, limits=SHORT_LIMITS) as agent,
        idle_in_transaction(cluster, READ, name="report") as pid,
        waiter(cluster, "truncate orders", name="cleanup") as cleanup,
        waiters(cluster, 4, READ),
    ):
        row = agent.until("lock-queue", within_s=5)
    assert row.text.startswith(f"4 sessions wait behind cleanup (pid {cleanup}: AccessExclusiveLock) on ")
    assert row.text.endswith(f"for report (postgres, pid {pid})")
    assert "privilege" not in row.text


def test_contention_of_an_ordinary_load_is_not_a_finding(clients: tuple[Cluster, Clients]) -> None:
    """Twenty clients that all want the one row of pgbench_branches, as fast as they can."""
    cluster, programs = clients
    cluster.run("pgbench", "-i", "-q", "-s", "1", cluster.dsn())
    with local_agent(cluster.dsn(), *RULES) as agent:
        programs.pgbench("-c", "20", role="postgres", application="bench", dbname="postgres")
        contended: list[int] = []

        def contention() -> bool:
            contended.append(waiting(agent))
            return sum(count > 5 for count in contended) >= 20

        wait_until(contention, LIMIT_S, what="contention in twenty readings")
        programs.stop()
        assert agent.changes == []


def waiting(agent: LocalAgent) -> int:
    """Sessions that wait for a lock in the next reading."""
    agent.tick(every_s=0)  # a transaction held for one real second is not to look like many
    locks = agent.picture.now("pg.locks", Locks)
    return 0 if locks is None else len(locks.waiters)
