"""The runbook `cutover` on a real cluster with a load on it: there and back, aborted, refused, and the failover.

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
from tests.cli.console import Console, Done, own_console
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("cutover")
HOLD, PROMOTE = "hold-the-clients-and-stop-the-old-primary", "promote"


@pytest.fixture(scope="module")
def ground() -> Iterator[PracticeCluster]:
    require_tool("pgbouncer")
    with PracticeCluster() as made:
        yield made


@pytest.fixture(scope="module")
def console(ground: PracticeCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(ground.dsn, **ground.environment):
        yield made


def go(console: Console, ground: PracticeCluster, to: str, *answers: str, runbook: str = "cutover") -> Done:
    """The runbook without a terminal; an answer is STEP=TEXT."""
    given = [part for answer in answers for part in ("--confirm", answer)]
    return console.run(
        "runbook", "run", runbook, "--dsn", ground.dsn, "--input", "cluster=demo", "--input", f"to={to}", "--yes",
        *given, "--plain", timeout=180, **ground.environment,
    )  # fmt: skip


def ask(ground: PracticeCluster, node: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(ground.nodes[node].dsn(), autocommit=True) as connection:
        return connection.execute(sql.encode()).fetchall()


def timeline(ground: PracticeCluster, node: str) -> int:
    [(name,)] = ask(ground, node, "select pg_walfile_name(pg_current_wal_lsn())")
    return int(str(name)[:8], 16)


def primary(ground: PracticeCluster) -> list[str]:
    return [name for name in ground.nodes if ask(ground, name, "select not pg_is_in_recovery()") == [(True,)]]


def limits(ground: PracticeCluster, node: str) -> set[int]:
    return {row[0] for row in ask(ground, node, "select datconnlimit from pg_database")}


def clients_write(ground: PracticeCluster) -> None:
    """Wait for a commit of the load that was not there yet."""
    before = ground.verdict().acknowledged
    wait_until(lambda: ground.verdict().acknowledged > before, what="a commit of the load")


def test_a_cutover_and_its_return_lose_nothing_and_every_node_follows(
    console: Console, ground: PracticeCluster
) -> None:
    for count, (to, old) in enumerate((("db2", "db1"), ("db1", "db2")), start=2):
        done = go(console, ground, to, f"{HOLD}=yes", f"{PROMOTE}={to}")
        assert done.code == 0, done
        assert primary(ground) == [to] and timeline(ground, to) == count
        for name in {"db1", "db2", "db3"} - {to}:
            [(state,)] = ask(ground, name, "select status from pg_stat_wal_receiver")
            assert state == "streaming", name
        assert limits(ground, to) == {-1}
        assert ask(ground, old, "select 1 from pg_replication_slots") == [], "a slot there would keep WAL for ever"
        assert re.search(r"clients could not write for \d", done.out), done.out
        clients_write(ground)
    found = ground.verdict()
    assert found.all_kept and found.acknowledged > 0, found.sentence()


def test_without_the_typed_name_nothing_changes(console: Console, ground: PracticeCluster) -> None:
    before = timeline(ground, "db1")
    done = go(console, ground, "db2", f"{HOLD}=yes")
    assert done.code == 8 and "type `db2` to confirm" in done.out, done
    assert primary(ground) == ["db1"] and timeline(ground, "db1") == before
    assert limits(ground, "db1") == {-1}
    assert not (ground.nodes["db1"].data_directory / "standby.signal").exists()
    assert ask(ground, "db2", "select 1 from pg_replication_slots") == [], "slots made for the nodes to follow are gone"
    for name in ("db2", "db3"):
        wait_until(partial(ask, ground, name, "select 1 from pg_stat_wal_receiver where status = 'streaming'"))
    clients_write(ground)
    assert ground.verdict().all_kept, ground.verdict().sentence()


def test_a_cluster_that_is_not_ready_is_left_alone(console: Console, ground: PracticeCluster) -> None:
    ask(ground, "db2", "select pg_wal_replay_pause()")
    try:
        done = go(console, ground, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
    finally:
        ask(ground, "db2", "select pg_wal_replay_resume()")
    assert done.code == 8 and "not ready" in done.out and "paused" in done.out, done
    assert primary(ground) == ["db1"] and "PAUSE shop" not in done.out


def test_an_unknown_node_name_is_refused_with_the_existing_names(console: Console, ground: PracticeCluster) -> None:
    done = go(console, ground, "db9", f"{HOLD}=yes")
    assert done.code == 8 and "use one of: db1, db2, db3" in done.out, done


def test_a_dead_primary_is_replaced_after_the_loss_is_typed(console: Console, ground: PracticeCluster) -> None:
    keep_down = "keep-the-old-primary-down"
    refused = go(console, ground, "db2", f"{keep_down}=yes", runbook="failover")
    assert refused.code == 8 and "answers as the primary" in refused.out, refused
    ground.nodes["db1"].kill()
    asked = go(console, ground, "db2", f"{keep_down}=yes", runbook="failover")
    [*_, typed] = re.findall(r"type `(\w+)`", asked.out)
    assert asked.code == 8 and re.search("lost is unknown|of WAL are lost", asked.out), asked
    done = go(
        console, ground, "db2", f"{keep_down}=yes", f"{PROMOTE}={typed}", "can-the-old-primary-come-back=rewind",
        "rewind-the-old-primary=rewind", runbook="failover",
    )  # fmt: skip
    assert done.code == 0, done
    assert primary(ground) == ["db2"]
    for name in ("db1", "db3"):
        wait_until(partial(ask, ground, name, "select 1 from pg_stat_wal_receiver where status = 'streaming'"))
    clients_write(ground)


def test_an_old_primary_is_cloned_if_chosen_and_its_directory_stays(console: Console, ground: PracticeCluster) -> None:
    [old] = primary(ground)
    to = "db1" if old == "db2" else "db2"
    ground.nodes[old].kill()
    given = ["keep-the-old-primary-down=yes", "can-the-old-primary-come-back=clone", "clone-the-old-primary=clone"]
    asked = go(console, ground, to, *given, runbook="failover")
    [*_, typed] = re.findall(r"type `(\w+)`", asked.out)
    done = go(console, ground, to, *given, f"{PROMOTE}={typed}", runbook="failover")
    assert done.code == 0, done
    assert primary(ground) == [to]
    wait_until(partial(ask, ground, old, "select 1 from pg_stat_wal_receiver where status = 'streaming'"))
    directory = ground.nodes[old].data_directory
    assert list(directory.parent.glob(f"{directory.name}.before-*"))
    clients_write(ground)
