"""Pages that were damaged, ids that were spent, and what holds the horizon: on real servers, as an agent reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.binaries import find_binaries
from dba_console.demo.incidents.wraparound import LEFT, STOP_BEFORE_WRAP, WRAP_AGE, XIDS_PER_SEGMENT, set_next_xid
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.safety.autovacuum_rules import WraparoundVacuumLimits
from dba_console.watch.safety.horizon_rules import HorizonLimits
from dba_console.watch.safety.rules import FAMILY
from dba_console.watch.safety.wraparound_rules import WraparoundLimits
from tests.background import session, wait_until, waiting_for_lock
from tests.clusters import FreshCluster
from tests.findings.collector import local_agent
from tests.requirements import lacking
from tests.sql import query, wait_for

SAFETY = tuple(rule.name for rule in FAMILY.rules)
PAGE = 8192


# -- checksums -------------------------------------------------------------------------------------------------------


@contextmanager
def damaged_table(cluster: Cluster, table: str) -> Iterator[None]:
    """A page of the table is not what was written, until the block ends; no buffer holds it."""
    query(cluster, f"create table {table} with (autovacuum_enabled = off) as select n from generate_series(1, 5000) n")
    path = cluster.data_directory / query(cluster, f"select pg_relation_filepath('{table}')")
    cluster.restart()
    sound = path.read_bytes()
    path.write_bytes(
        sound[: PAGE + 4000] + bytes(byte ^ 0xFF for byte in sound[PAGE + 4000 : PAGE + 4008]) + sound[PAGE + 4008 :]
    )
    try:
        yield
    finally:
        path.write_bytes(sound)


def read(cluster: Cluster, table: str) -> None:
    """Read the table, which fails; returns when the server has counted it, which 14 does half a second later."""
    with pytest.raises(ConsoleError, match="invalid page"):
        query(cluster, f"select sum(n) from {table}")
    wait_for(cluster, "select 1 from pg_stat_database where checksum_failures > 0", what="the failure counted")


@pytest.mark.parametrize("major", [14, 18])
def test_a_damaged_page_is_critical_from_its_first_read(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(major=major)
    with damaged_table(cluster, "ledger"), local_agent(cluster.dsn(), *SAFETY) as agent:
        assert agent.rows == []
        read(cluster, "ledger")
        found = agent.until("checksum-failure", within_s=5)
        query(cluster, "select pg_stat_reset()")
        agent.tick(30)
        assert [row.id for row in agent.rows] == ["checksum-failure"], "resetting the statistics mends no page"
    assert found.severity == "critical"
    assert "in database postgres" in found.text


def test_a_failure_before_a_crash_is_still_known_after_it(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with damaged_table(cluster, "ledger"), local_agent(cluster.dsn(), "checksum-failure") as agent:
        read(cluster, "ledger")
        agent.until("checksum-failure", within_s=10)
        cluster.kill()
        (cluster.data_directory / "postmaster.pid").unlink(missing_ok=True)
        cluster.start()
        assert query(cluster, "select sum(checksum_failures) from pg_stat_database") == "0"
        agent.tick(20)
        assert len(agent.open("checksum-failure")) == 1


def test_checksums_that_are_off_are_reported_once(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.stop()
    cluster.run("pg_checksums", "--disable", "-D", str(cluster.data_directory))
    cluster.start()
    with local_agent(cluster.dsn(), *SAFETY) as agent:
        found = agent.until("checksums-off", within_s=3)
        agent.tick(60)
        assert len(agent.changes) == 1
    assert found.severity == "info"


# -- transaction ids -------------------------------------------------------------------------------------------------


def age_xids(cluster: Cluster) -> None:
    """Four million ids before the stop, with nothing that holds the horizon.

    Autovacuum is forced then and begins with the server: it stops at a table whose file is gone, until that is dropped.
    """
    try:
        find_binaries(["pg_resetwal"], at_least=cluster.major)
    except ConsoleError as error:
        lacking(str(error))
    oldest = int(query(cluster, "select datfrozenxid from pg_database order by age(datfrozenxid) desc limit 1"))
    query(cluster, "create table lost ()")
    file = query(cluster, "select pg_relation_filepath('lost')")
    cluster.stop()
    (cluster.data_directory / file).unlink()
    set_next_xid(cluster, oldest + WRAP_AGE - STOP_BEFORE_WRAP - LEFT)
    cluster.start({"autovacuum": "off"})


@pytest.mark.parametrize("major", [None, 16])
def test_the_last_ids_are_critical_from_the_first_read_until_every_database_is_vacuumed(
    major: int | None, fresh_cluster: FreshCluster
) -> None:
    cluster = fresh_cluster(major=major)
    age_xids(cluster)
    with local_agent(cluster.dsn(), *SAFETY, calm_s=1) as agent:
        found = agent.until("xid-wraparound", within_s=3)
        assert found.severity == "critical"
        assert abs(int(found.evidence["xid_left"]) - LEFT) < 10_000
        assert found.text.startswith(f"4.0 M transaction ids left until PostgreSQL {cluster.major} stops")
        query(cluster, "select txid_current()")
        # which of the databases is the oldest, a forced autovacuum may change between the two
        says = str(found.evidence["server_says"]).rpartition(" within ")[0]
        says = re.sub('"(postgres|template[01])"', r'"\\w+"', says)
        assert re.search(f"WARNING:  {says} within ", cluster.log_text()), "the words are the server's own"
        query(cluster, "drop table lost")
        query(cluster, "alter database template0 allow_connections true")
        wait_until(lambda: vacuum_all(cluster), 120, what="every database frozen")
        agent.until_gone("xid-wraparound", within_s=60)


def vacuum_all(cluster: Cluster) -> bool:
    """Vacuum every database; whether that was enough, which a forced autovacuum of the same table may put off."""
    for name in ("postgres", "template1", "template0"):
        query(cluster, "vacuum", dbname=name)
    return int(query(cluster, "select max(age(datfrozenxid)) from pg_database")) < WRAP_AGE // 10


def test_a_young_cluster_of_any_version_has_no_finding(server: Cluster) -> None:
    with local_agent(server.dsn(), *SAFETY, calm_s=40) as agent:
        assert [row.text for row in agent.rows] == []


@pytest.mark.pg(14, 18)
def test_the_thresholds_are_those_of_the_running_server(server: Cluster) -> None:
    low = Limits(WraparoundLimits(xid_warn_xids=1, xid_critical_xids=2))
    with local_agent(server.dsn(), "xid-wraparound", limits=low, calm_s=70) as agent:
        (found,) = agent.rows
    assert found.severity == "critical"
    age = int(query(server, "select max(age(datfrozenxid)) from pg_database"))
    assert int(found.evidence["xid_age"]) <= age
    assert found.evidence["xid_stop_age"] == 2_144_483_647
    assert found.evidence["xids_per_s"] is not None


# -- horizon ---------------------------------------------------------------------------------------------------------

FEW = Limits(HorizonLimits(horizon_warn_xids=40, prepared_s=0.0))


def consume_xids(cluster: Cluster, ids: int = 60) -> None:
    """Consume `ids` transaction ids."""
    with session(cluster) as connection:
        for _ in range(ids):
            connection.execute("select txid_current()")


def test_a_forgotten_snapshot_is_named_until_it_ends(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with (
        psycopg.connect(cluster.dsn(application_name="reports")) as idler,
        local_agent(cluster.dsn(), *SAFETY, limits=FEW) as agent,
    ):
        idler.execute("set transaction isolation level repeatable read")
        idler.execute("select 1")
        consume_xids(cluster)
        found = agent.until("horizon-held", within_s=15)
        assert found.evidence["pid"] == idler.info.backend_pid
        assert f"pg_terminate_backend({idler.info.backend_pid})" in (found.advice or "")
        idler.rollback()
        agent.until_gone("horizon-held", within_s=60)


def test_a_forgotten_prepared_transaction_is_named_with_its_gid(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_prepared_transactions": 2})
    query(cluster, "create table t (n int)")
    with local_agent(cluster.dsn(), *SAFETY, limits=FEW) as agent:
        query(cluster, "begin; insert into t values (1); prepare transaction 'order-17'")
        found = agent.until("horizon-held", within_s=15)
        assert "prepared transaction 'order-17'" in found.text
        assert "in database postgres" in (found.advice or "")
        query(cluster, "rollback prepared 'order-17'")
        agent.until_gone("horizon-held", within_s=60)


@pytest.mark.parametrize("major", [14, 17])
def test_a_slot_that_holds_back_the_catalogs_is_named(major: int, reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"wal_level": "logical"}, major=major)
    query(cluster, "select pg_create_logical_replication_slot('old_sub', 'pgoutput')")
    consume_xids(cluster)
    with local_agent(cluster.dsn(), *SAFETY, limits=FEW) as agent:
        (found,) = agent.rows
        assert (found.id, found.evidence["holder"]) == ("horizon-held", "old_sub")
        assert "inactive replication slot old_sub" in found.text


def test_without_pg_monitor_the_age_is_reported_without_its_start(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "create role watcher login")
    with psycopg.connect(cluster.dsn(application_name="reports")) as idler:
        idler.execute("select txid_current()")
        consume_xids(cluster)
        with local_agent(cluster.dsn(user="watcher"), *SAFETY, limits=FEW) as agent:
            (found,) = agent.rows
        assert found.evidence["pid"] == idler.info.backend_pid
    assert found.evidence["since_age_s"] is None


# -- vacuums against wraparound --------------------------------------------------------------------------------------


def consume_most_xids(cluster: Cluster) -> None:
    """Move the next transaction id to the next segment of pg_xact, more than 100,000 further than the one used last."""
    used = int(query(cluster, "select txid_current()"))
    cluster.stop()
    set_next_xid(cluster, ((used + 100_000) // XIDS_PER_SEGMENT + 1) * XIDS_PER_SEGMENT + 100)
    cluster.start()


def test_an_anti_wraparound_vacuum_is_reported_with_its_waiting_sessions(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster(
        {
            "autovacuum_freeze_max_age": 100_000, "autovacuum_naptime": "1s", "autovacuum_vacuum_cost_delay": "100ms",
            "autovacuum_vacuum_cost_limit": 1, "autovacuum": "off",
        }
    )  # fmt: skip
    query(
        cluster,
        "create table big with (fillfactor = 10) as select n, repeat('x', 100) t from generate_series(1, 60000) n",
    )
    consume_most_xids(cluster)
    patient = Limits(WraparoundVacuumLimits(wraparound_wait_s=0.2))
    with local_agent(cluster.dsn(), "wraparound-vacuum", limits=patient) as agent:
        found = agent.until("wraparound-vacuum", within_s=200)
        assert found.severity == "info"
        works = "select relid::regclass from pg_stat_progress_vacuum where relid = 'big'::regclass"
        wait_for(cluster, works, what="the vacuum of the big table")
        with waiting_for_lock(cluster, "alter table big add column more int", name="migration"):
            late = agent.until("wraparound-vacuum", severity="warning")
        assert "public.big" in late.text and "1 session waits for it" in late.text
