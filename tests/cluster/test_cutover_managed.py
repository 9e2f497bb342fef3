"""The runbook `cutover` on clusters that a manager runs: its own switchover between our checks, freeze and release."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.background import wait_until
from tests.cli.console import Console, Done, own_console
from tests.cluster import test_cutover as unmanaged
from tests.cluster.test_cutover import HOLD, PROMOTE
from tests.patroni import NAME, PatroniCluster
from tests.repmgr import repmgr_cluster

pytestmark = pytest.mark.xdist_group("cutover-managed")


@pytest.fixture(scope="module")
def ground() -> Iterator[PatroniCluster]:
    with PatroniCluster() as made:
        yield made


@pytest.fixture(scope="module")
def console(ground: PatroniCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(ground.dsn("db1"), **ground.environment):
        yield made


def go(console: Console, ground: PatroniCluster, to: str) -> Done:
    return console.run(
        "runbook", "run", "cutover", "--dsn", ground.dsn("db1"), "--input", f"cluster={NAME}", "--input", f"to={to}",
        "--yes", "--confirm", f"{HOLD}=yes", "--confirm", f"{PROMOTE}={to}", "--plain", timeout=180,
        **ground.environment,
    )  # fmt: skip


def clients_write(ground: PatroniCluster) -> None:
    before = ground.verdict().acknowledged
    wait_until(lambda: ground.verdict().acknowledged > before, what="a commit of the load")


def test_a_switchover_that_patroni_refuses_changes_nothing(console: Console, ground: PatroniCluster) -> None:
    ground.patroni["db2"].send_signal(signal.SIGSTOP)  # its server goes on
    try:
        done = go(console, ground, "db2")
    finally:
        ground.patroni["db2"].send_signal(signal.SIGCONT)
    assert done.code == 7 and "Patroni did not switch over, db1 is still the primary" in done.out, done
    assert ground.primary() == ["db1"]
    assert ground.ask("db1", "select distinct datconnlimit from pg_database") == [(-1,)]
    clients_write(ground)


def test_patroni_switches_over_and_back_while_clients_wait(console: Console, ground: PatroniCluster) -> None:
    for to, old in (("db2", "db1"), ("db1", "db2")):
        wait_until(ground.complete, what="both members")
        done = go(console, ground, to)
        assert done.code == 0, done
        assert f"done by Patroni: its switchover stops {old}" in done.out, done
        assert ground.primary() == [to] and ground.complete()
        assert ground.ask(to, "select distinct datconnlimit from pg_database") == [(-1,)]
        assert re.search(r"clients could not write for \d", done.out), done.out
        clients_write(ground)
    found = ground.verdict()
    assert found.all_kept and found.acknowledged > 0, found.sentence()


def test_repmgr_switches_over_and_every_node_follows() -> None:
    with repmgr_cluster() as ground, own_console() as console, console.watching(ground.dsn, **ground.environment):
        done = unmanaged.go(console, ground, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
        assert done.code == 0, done
        assert "done by repmgr: its switchover stops db1" in done.out, done
        assert unmanaged.primary(ground) == ["db2"] and unmanaged.limits(ground, "db2") == {-1}
        for name in ("db1", "db3"):
            assert unmanaged.ask(ground, name, "select status from pg_stat_wal_receiver") == [("streaming",)], name
        unmanaged.clients_write(ground)
        assert ground.verdict().all_kept, ground.verdict().sentence()
