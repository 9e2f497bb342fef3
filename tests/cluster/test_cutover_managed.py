"""The runbook `cutover` on clusters that a manager runs: its own switchover between our checks, freeze and release."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console
from tests.cluster import test_cutover as unmanaged
from tests.cluster.test_cutover import HOLD, PROMOTE
from tests.patroni import NAME, PatroniCluster
from tests.repmgr import repmgr_cluster

pytestmark = pytest.mark.xdist_group("cutover-managed")


@pytest.fixture(scope="module")
def patroni() -> Iterator[PatroniCluster]:
    with PatroniCluster() as made:
        yield made


@pytest.fixture(scope="module")
def console(patroni: PatroniCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(patroni.dsn("db1"), **patroni.environment):
        yield made


def run_cutover(console: Console, patroni: PatroniCluster, to: str) -> CompletedCommand:
    return console.run(
        "runbook", "run", "cutover", "--dsn", patroni.dsn("db1"), "--input", f"cluster={NAME}", "--input", f"to={to}",
        "--yes", "--confirm", f"{HOLD}=yes", "--confirm", f"{PROMOTE}={to}", "--plain", timeout=180,
        **patroni.environment,
    )  # fmt: skip


def wait_for_client_commit(patroni: PatroniCluster) -> None:
    before = patroni.verdict().acknowledged
    wait_until(lambda: patroni.verdict().acknowledged > before, what="a commit of the load")


def test_a_switchover_that_patroni_refuses_changes_nothing(console: Console, patroni: PatroniCluster) -> None:
    patroni.patroni["db2"].send_signal(signal.SIGSTOP)  # its server goes on
    try:
        done = run_cutover(console, patroni, "db2")
    finally:
        patroni.patroni["db2"].send_signal(signal.SIGCONT)
    assert done.code == 7 and "Patroni did not switch over, db1 is still the primary" in done.out, done
    assert patroni.primary() == ["db1"]
    assert patroni.ask("db1", "select distinct datconnlimit from pg_database") == [(-1,)]
    wait_for_client_commit(patroni)


def test_patroni_switches_over_and_back_while_clients_wait(console: Console, patroni: PatroniCluster) -> None:
    for to, old in (("db2", "db1"), ("db1", "db2")):
        wait_until(patroni.complete, what="both members")
        done = run_cutover(console, patroni, to)
        assert done.code == 0, done
        assert f"done by Patroni: its switchover stops {old}" in done.out, done
        assert patroni.primary() == [to] and patroni.complete()
        assert patroni.ask(to, "select distinct datconnlimit from pg_database") == [(-1,)]
        assert re.search(r"clients could not write for \d", done.out), done.out
        wait_for_client_commit(patroni)
    found = patroni.verdict()
    assert found.all_kept and found.acknowledged > 0, found.sentence()


def test_repmgr_switches_over_and_every_node_follows() -> None:
    with repmgr_cluster() as patroni, own_console() as console, console.watching(patroni.dsn, **patroni.environment):
        done = unmanaged.run_cutover(console, patroni, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
        assert done.code == 0, done
        assert "done by repmgr: its switchover stops db1" in done.out, done
        assert unmanaged.primary(patroni) == ["db2"] and unmanaged.connection_limits(patroni, "db2") == {-1}
        for name in ("db1", "db3"):
            assert unmanaged.query_node(patroni, name, "select status from pg_stat_wal_receiver") == [("streaming",)], (
                name
            )
        unmanaged.wait_for_client_commit(patroni)
        assert patroni.verdict().all_kept, patroni.verdict().sentence()
