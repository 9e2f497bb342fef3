"""The runbook `cutover` on a real cluster with a load on it: there and back, aborted, refused.

The nodes are those of `demo --cluster`: three servers under pg_ctl, PgBouncer, and a load with its own ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from dba_console.demo.practice_cluster import PracticeCluster
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("cutover")
HOLD, PROMOTE = "hold-the-clients-and-stop-the-old-primary", "promote"


@pytest.fixture(scope="module")
def practice() -> Iterator[PracticeCluster]:
    require_tool("pgbouncer")
    with PracticeCluster() as made:
        yield made


@pytest.fixture(scope="module")
def console(practice: PracticeCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(practice.dsn, **practice.environment):
        yield made


def run_cutover(
    console: Console, practice: PracticeCluster, to: str, *answers: str, runbook: str = "cutover"
) -> CompletedCommand:
    """The runbook without a terminal; an answer is STEP=TEXT."""
    given = [part for answer in answers for part in ("--confirm", answer)]
    return console.run(
        "runbook", "run", runbook, "--dsn", practice.dsn, "--input", "cluster=demo", "--input", f"to={to}", "--yes",
        *given, "--plain", timeout=180, **practice.environment,
    )  # fmt: skip


def query_node(practice: PracticeCluster, node: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(practice.nodes[node].dsn(), autocommit=True) as connection:
        return connection.execute(sql.encode()).fetchall()


def timeline(practice: PracticeCluster, node: str) -> int:
    [(name,)] = query_node(practice, node, "select pg_walfile_name(pg_current_wal_lsn())")
    return int(str(name)[:8], 16)


def primary(practice: PracticeCluster) -> list[str]:
    return [
        name for name in practice.nodes if query_node(practice, name, "select not pg_is_in_recovery()") == [(True,)]
    ]


def connection_limits(practice: PracticeCluster, node: str) -> set[int]:
    return {row[0] for row in query_node(practice, node, "select datconnlimit from pg_database")}


def wait_for_client_commit(practice: PracticeCluster) -> None:
    """Wait for a commit of the load that was not there yet."""
    before = practice.verdict().acknowledged
    wait_until(lambda: practice.verdict().acknowledged > before, what="a commit of the load")


def test_a_cutover_and_its_return_lose_nothing_and_every_node_follows(
    console: Console, practice: PracticeCluster
) -> None:
    for count, (to, old) in enumerate((("db2", "db1"), ("db1", "db2")), start=2):
        done = run_cutover(console, practice, to, f"{HOLD}=yes", f"{PROMOTE}={to}")
        assert done.code == 0, done
        assert primary(practice) == [to] and timeline(practice, to) == count
        for name in {"db1", "db2", "db3"} - {to}:
            [(state,)] = query_node(practice, name, "select status from pg_stat_wal_receiver")
            assert state == "streaming", name
        assert connection_limits(practice, to) == {-1}
        assert query_node(practice, old, "select 1 from pg_replication_slots") == [], (
            "a slot there would keep WAL for ever"
        )
        assert re.search(r"clients could not write for \d", done.out), done.out
        wait_for_client_commit(practice)
    found = practice.verdict()
    assert found.all_kept and found.acknowledged > 0, found.sentence()


def test_without_the_typed_name_nothing_changes(console: Console, practice: PracticeCluster) -> None:
    before = timeline(practice, "db1")
    done = run_cutover(console, practice, "db2", f"{HOLD}=yes")
    assert done.code == 8 and "type `db2` to confirm" in done.out, done
    assert primary(practice) == ["db1"] and timeline(practice, "db1") == before
    assert connection_limits(practice, "db1") == {-1}
    assert not (practice.nodes["db1"].data_directory / "standby.signal").exists()
    assert query_node(practice, "db2", "select 1 from pg_replication_slots") == [], (
        "slots made for the nodes to follow are gone"
    )
    for name in ("db2", "db3"):
        wait_until(partial(query_node, practice, name, "select 1 from pg_stat_wal_receiver where status = 'streaming'"))
    wait_for_client_commit(practice)
    assert practice.verdict().all_kept, practice.verdict().sentence()


def test_a_cluster_that_is_not_ready_is_left_alone(console: Console, practice: PracticeCluster) -> None:
    query_node(practice, "db2", "select pg_wal_replay_pause()")
    try:
        done = run_cutover(console, practice, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
    finally:
        query_node(practice, "db2", "select pg_wal_replay_resume()")
    assert done.code == 8 and "not ready" in done.out and "paused" in done.out, done
    assert primary(practice) == ["db1"] and "PAUSE shop" not in done.out


def test_an_unknown_node_name_is_refused_with_the_existing_names(console: Console, practice: PracticeCluster) -> None:
    done = run_cutover(console, practice, "db9", f"{HOLD}=yes")
    assert done.code == 8 and "use one of: db1, db2, db3" in done.out, done
