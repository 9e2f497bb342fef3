"""What the runbook `lock-queue` shows of a queue, on every version of the server: root and middle, what each wrote, and
who is chosen at first. What it does about them is in test_lock_queue.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from dba_console.demo.temporary_server import Cluster
from dba_console.runbooks.library import listed
from tests.background import idle_in_transaction, wait_until, waiting_for_lock
from tests.clusters import FreshCluster
from tests.sql import query
from tests.standbys import copied_standby

PLAN = next(row.plan for row in listed() if row.plan is not None and row.plan.id == "lock-queue")
SQL = {block.id.partition("/")[0]: block.body for _, block in PLAN.blocks() if block.kind == "preview"}
QUEUE, MIDDLE = SQL["who-waits-for-whom"], SQL["cancel-the-statement-in-the-middle"]
ROOT, PREPARED = SQL["end-the-session-at-the-root"], SQL["end-the-prepared-transaction"]
ORDERS = '"Sh op"."Or ders"'
SCHEMA = f"""
create schema "Sh op";
create table {ORDERS} (i int primary key, n int) partition by range (i);
create table "Sh op"."Or ders 1" partition of {ORDERS} for values from (0) to (100);
insert into {ORDERS} select i, 0 from generate_series(1, 9) i;
create table public.hot (i int primary key, n int);
insert into public.hot values (1, 0);
create table public.ledger (what text);
create table public.aside (i int);
grant usage on schema "Sh op" to public;
"""
Rows = dict[str, dict[str, Any]]


def preview_rows(cluster: Cluster, sql: str, user: str = "postgres") -> Rows:
    """The rows of a preview as the console reads them, by application."""
    with psycopg.connect(
        cluster.dsn(user=user, application_name="looks"), autocommit=True, row_factory=dict_row
    ) as one:
        one.execute("set search_path = pg_catalog, pg_temp")
        one.execute("set default_transaction_read_only = on")
        return {row["application"]: row for row in one.execute(sql.encode()).fetchall()}


def row_summary(rows: Rows, *columns: str) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(row[column] for column in columns) for name, row in rows.items()}


@pytest.fixture
def shop(server: Cluster) -> Iterator[Cluster]:
    for sql in ("create role watcher login in role pg_monitor", "create role stranger login"):
        query(server, sql)
    query(server, SCHEMA)
    yield server
    query(server, 'drop schema "Sh op" cascade; drop table public.hot, public.ledger, public.aside')
    query(server, "drop role watcher; drop role stranger")


@pytest.fixture
def queues(shop: Cluster) -> Iterator[Cluster]:
    """Two roots before a migration, with others behind it; a row everybody wants; somebody who forgot a lock."""
    with ExitStack() as stack:
        for name, sql in (
            ("report", f"select count(*) from {ORDERS}"),
            ("batch", f"update {ORDERS} set n = 1 where i = 1"),
            ("first", "update public.hot set n = 1"),
            ("forgotten", "lock table public.aside in access exclusive mode"),
        ):
            stack.enter_context(idle_in_transaction(shop, sql, name=name))
        for name, sql in (
            ("migration", f"alter table {ORDERS} add column note text"),
            ("release", f"begin; insert into public.ledger values ('v2'); create index on {ORDERS} (n)"),
            ("web", f"select count(*) from {ORDERS}"),
            ("shop", f"update {ORDERS} set n = 2 where i = 2"),
            ("second", "begin; insert into public.ledger values ('paid'); update public.hot set n = 2"),
            ("third", "update public.hot set n = 3"),
            ("cron", "select count(*) from public.aside"),
        ):
            stack.enter_context(waiting_for_lock(shop, sql, name=name))
        yield shop


def test_the_rows_show_lock_written_data_and_loss_and_the_queue_of_the_finding_is_selected(
    queues: Cluster,
) -> None:
    rows = preview_rows(queues, QUEUE)
    assert row_summary(rows, "part", "relation", "mode", "wrote") == {
        "report": ("holds", ORDERS, "AccessShare", "no"),
        "batch": ("holds", ORDERS, "AccessShare, RowExclusive", "yes"),
        "first": ("holds", "public.hot", "RowExclusive", "yes"),
        "forgotten": ("holds", "public.aside", "AccessExclusive", "?"),
        "migration": ("waits", ORDERS, "AccessExclusive", "no"),
        "release": ("waits", ORDERS, "Share", "yes"),
        "second": ("waits", "public.hot", "Share", "yes"),
    }
    # An ALTER TABLE that waits has a transaction id, so that the lock can be logged (lock.c), and wrote nothing.
    assert (
        query(queues, "select backend_xid is not null from pg_stat_activity where application_name = 'migration'")
        == "t"
    )

    middle = preview_rows(queues, MIDDLE)
    assert row_summary(middle, "relation", "mode", "wrote", "lost", "named") == {
        "migration": (ORDERS, "AccessExclusive", "no", "nothing: it can be retried", True),
        "release": (ORDERS, "Share", "yes", "what its transaction wrote", False),
    }
    assert middle["migration"]["behind"] == 3, "release, web and shop"

    root = preview_rows(queues, ROOT)
    assert row_summary(root, "relation", "wrote", "lost", "named") == {
        "report": (ORDERS, "no", "its connection", True),
        "batch": (ORDERS, "yes", "all it wrote, and its connection", True),
        "first": ("public.hot", "yes", "all it wrote, and its connection", False),
        "forgotten": ("public.aside", "?", "what its transaction did, and its connection", False),
    }
    assert {name: row["behind"] for name, row in root.items()} == {"report": 4, "batch": 4, "first": 2, "forgotten": 1}

    assert row_summary(preview_rows(queues, MIDDLE, "watcher"), "wrote", "named") == row_summary(
        middle, "wrote", "named"
    )
    assert set(preview_rows(queues, ROOT, "watcher")) == set(root)
    hidden = preview_rows(queues, QUEUE, "stranger")
    assert {row["wrote"] for row in hidden.values()} == {"?"}, "what this role may not see is not told as no"
    assert preview_rows(queues, MIDDLE, "stranger") == preview_rows(queues, ROOT, "stranger") == {}


def test_without_a_queue_behind_a_strong_lock_the_root_with_most_waiters_is_selected(shop: Cluster) -> None:
    with (
        idle_in_transaction(shop, "update public.hot set n = 1", name="first"),
        idle_in_transaction(shop, f"update {ORDERS} set n = 1 where i = 1", name="batch"),
        waiting_for_lock(shop, "update public.hot set n = 2", name="second"),
        waiting_for_lock(shop, "update public.hot set n = 3", name="third"),
        waiting_for_lock(shop, f"update {ORDERS} set n = 3 where i = 1", name="web"),
    ):
        assert row_summary(preview_rows(shop, ROOT), "named", "behind") == {"first": (True, 2), "batch": (False, 1)}
        assert preview_rows(shop, MIDDLE) == {}, (
            "who waits for a row is not cancelled: it has most often written something"
        )


def test_a_cancelled_concurrent_build_leaves_an_invalid_index(shop: Cluster) -> None:
    with (
        idle_in_transaction(shop, "lock table public.hot in share mode", name="backup"),
        waiting_for_lock(shop, "create index concurrently on public.hot (n)", name="build"),
        waiting_for_lock(shop, "vacuum (analyze) public.hot", name="vacuum"),
    ):
        build = preview_rows(shop, MIDDLE)["build"]
        assert (build["mode"], build["lost"], build["named"]) == (
            "ShareUpdateExclusive",
            "leaves an invalid index",
            False,
        )


def test_a_prepared_transaction_at_the_root_is_named_with_its_lock(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"max_prepared_transactions": 5})
    query(cluster, 'create table public."Or ders" (i int); create table public.other (i int)')
    for name, table in (("gone", '"Or ders"'), ("aside", "other")):
        query(cluster, f"begin; insert into public.{table} values (1); prepare transaction '{name}'")
    for restart in (False, True):
        if restart:
            cluster.stop()
            cluster.start()
        with waiting_for_lock(cluster, 'truncate public."Or ders"', name="nightly"):
            rows = preview_rows(cluster, QUEUE)
            assert row_summary(rows, "part", "pid", "relation", "wrote") == {
                "prepared transaction": ("holds", 0, 'public."Or ders"', "?")
            }
            assert preview_rows(cluster, ROOT) == {}
            with psycopg.connect(cluster.dsn(application_name="looks"), row_factory=dict_row) as connection:
                (row,) = connection.execute(PREPARED.encode()).fetchall()
            shown = (row["gid"], row["relation"], row["mode"], row["lost"], row["behind"])
            assert shown == ("gone", '"Or ders"', "RowExclusive", "all its changes", 1), "and not the other one"


def test_on_a_standby_the_root_may_be_the_startup_process(fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster({"wal_level": "replica"})
    query(primary, "create table public.orders (i int)")
    with (
        copied_standby(primary) as standby,
        idle_in_transaction(primary, "lock table public.orders in access exclusive mode", name="release"),
    ):
        held = "select 1 from pg_locks where granted and mode = 'AccessExclusiveLock' and relation = 'orders'::regclass"
        wait_until(lambda: query(standby, held), what="the lock replayed")
        with waiting_for_lock(standby, "select count(*) from public.orders", name="web"):
            rows = preview_rows(standby, QUEUE)
            assert row_summary(rows, "part", "mode", "wrote") == {"startup": ("holds", "AccessExclusive", "no")}
            assert preview_rows(standby, ROOT) == preview_rows(standby, MIDDLE) == {}, "nothing here would end it"
