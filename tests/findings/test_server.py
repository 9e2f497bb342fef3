"""Rules about the server, on real servers that are stopped, killed, frozen, promoted and reconfigured."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.findings.collector import LocalAgent, local_agent
from tests.sql import query, wait_for
from tests.standbys import copied_standby

SERVER = (
    "server-down", "server-restarted", "server-promoted", "settings-changed", "version-changed", "postmaster-stopped",
)  # fmt: skip


def commit_transactions(cluster: Cluster) -> None:
    """Enough transactions for a loss of the counters to show."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        for _ in range(150):
            connection.execute("select 1")
    wait_for(cluster, "select sum(xact_commit) > 150 from pg_stat_database", what="them counted")


def test_a_server_that_is_down_is_a_warning_first_and_critical_when_it_stays_down(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        assert agent.rows == []
        cluster.stop()
        warning = agent.until("server-down", within_s=8)
        assert (warning.severity, warning.evidence["outage"]) == ("warning", "refused")
        critical = agent.until("server-down", severity="critical", within_s=15)
        agent.tick(8)
        (reported,) = agent.open("server-down")
        cluster.start()
        agent.until_gone("server-down", within_s=10)
    assert 10e6 <= critical.at_us - critical.since_us < 14e6
    assert reported.evidence["control_state"] == "shut down"
    assert reported.text.startswith("PostgreSQL cannot be reached: ") and "shut down cleanly" in reported.text


def test_an_orderly_restart_is_reported_and_is_not_an_outage(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        commit_transactions(cluster)
        agent.tick(6)
        cluster.restart()
        restarted = agent.until("server-restarted", within_s=8)
        agent.tick(20)
        assert [row.rule for row in agent.rows] == ["server-restarted"]
        assert not [change for change in agent.changes if change.finding.severity == "critical"]
        # Evaluated with pg.server, which is read every 30 ticks.
        agent.until_gone("server-restarted", within_s=900 + 31 * 4, every_s=4)
    assert (restarted.severity, restarted.evidence["crashed"]) == ("info", False)
    assert restarted.text == "PostgreSQL was restarted after a clean shutdown"
    started_us = float(cluster_start(cluster)) * 1e6
    assert abs(restarted.since_us - started_us) < 400e6, "by the host's clock, which the test has put forward"


def cluster_start(cluster: Cluster) -> str:
    cluster.start()
    return query(cluster, "select extract(epoch from pg_postmaster_start_time())")


@pytest.mark.parametrize("major", [14, 17])
def test_a_crash_of_the_server_is_distinguished_from_an_orderly_restart(
    major: int, reused_cluster: FreshCluster
) -> None:
    cluster = reused_cluster(major=major)
    with local_agent(cluster.dsn(), *SERVER) as agent:
        commit_transactions(cluster)
        agent.tick(6)
        cluster.kill()
        agent.tick()
        cluster.start()
        restarted = agent.until("server-restarted", within_s=30)
    assert restarted.evidence["crashed"] is True
    assert restarted.text == "PostgreSQL was restarted after a crash: its statistics are lost"


def test_a_crash_of_one_process_is_reported_although_the_postmaster_survived(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        pid = int(query(cluster, "select pid from pg_stat_activity where backend_type = 'walwriter'"))
        os.kill(pid, 9)
        agent.tick()
        wait_until(lambda: is_back(cluster, pid), 60, what="the recovery over")
        reported = agent.until("server-restarted", within_s=8)
    assert reported.text == "PostgreSQL ended every session and recovered, because one of its processes crashed"


def is_back(cluster: Cluster, crashed: int) -> bool:
    """Whether another process writes the WAL than the one that crashed."""
    of_another = f"select count(*) > 0 from pg_stat_activity where backend_type = 'walwriter' and pid <> {crashed}"
    try:
        return query(cluster, of_another) == "t"
    except ConsoleError:
        return False


def test_a_terminated_connection_is_neither_an_outage_nor_a_restart(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        query(cluster, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'dba-console'")
        agent.tick(40)
        assert agent.changes == []


def test_a_stopped_postmaster_is_critical_and_says_how_to_continue_it(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        cluster.sigstop()
        reported = agent.until("postmaster-stopped", within_s=8)
        cluster.sigcont()
        agent.until_gone("postmaster-stopped", within_s=8)
    assert reported.severity == "critical"
    assert reported.evidence == {"pid": cluster.pid, "state": "T"}
    assert reported.advice is not None and f"kill -CONT {cluster.pid}" in reported.advice


def test_changed_settings_are_reported_in_one_finding_with_old_and_new_values(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        reload(cluster, "max_wal_size", "2048")
        reload(cluster, "checkpoint_timeout", "900")
        reported = agent.until("settings-changed", within_s=31)
        assert reported.severity == "info"
        assert reported.text == (
            "Settings changed: checkpoint_timeout from 300s to 900s, max_wal_size from 1024MB to 2048MB"
        )
        reload(cluster, "max_wal_size", None)
        reload(cluster, "checkpoint_timeout", None)
        agent.until_gone("settings-changed", within_s=31)


def reload(cluster: Cluster, name: str, value: str | None) -> None:
    before = query(cluster, f"select setting from pg_settings where name = '{name}'")
    query(cluster, f"alter system {'reset ' + name if value is None else f'set {name} = {value}'}")
    query(cluster, "select pg_reload_conf()")
    wait_for(cluster, f"select setting <> '{before}' from pg_settings where name = '{name}'", what=f"{name} in force")


def test_a_promotion_is_reported_with_its_timelines(reused_cluster: FreshCluster) -> None:
    primary = reused_cluster()
    with copied_standby(primary) as standby, local_agent(standby.dsn(), *SERVER) as agent:
        query(standby, "select pg_promote()")
        reported = agent.until("server-promoted", within_s=40)
        assert [row.rule for row in agent.rows] == ["server-promoted"]
    assert reported.severity == "warning"
    assert reported.text == "The standby was promoted: it is a primary now, timeline 1 became 2"
    assert (reported.evidence["role_before"], reported.evidence["role"]) == ("standby", "primary")


def test_another_cluster_at_the_same_address_is_critical(fresh_cluster: FreshCluster) -> None:
    one, other = fresh_cluster(), fresh_cluster()
    with local_agent(one.dsn(), *SERVER) as agent:
        one.stop()
        other.stop()
        one.data_directory.rename(one.base / "aside")
        other.data_directory.rename(one.data_directory)
        one.start()
        reported = agent.until("server-promoted", within_s=20)
        assert agent.open("server-restarted") == [], "nothing of two clusters is compared"
    assert reported.severity == "critical"
    assert reported.text.startswith("A different cluster answers: system identifier ")


def test_a_role_that_may_not_log_in_is_a_warning_because_the_server_is_up(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "create role nobody_may nologin")
    agent = LocalAgent(cluster.dsn(user="nobody_may"), only=SERVER)
    try:
        reported = agent.until("server-down", within_s=10)
        agent.tick(20)
        assert {row.severity for row in agent.rows} == {"warning"}
    finally:
        agent.collector.close()
    assert reported.text.startswith("PostgreSQL refuses the console: ")
    assert reported.advice is not None and "pg_hba.conf" in reported.advice


def test_a_server_that_keeps_the_connection_open_and_is_silent_is_reported_as_that(
    reused_cluster: FreshCluster,
) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *SERVER) as agent:
        pid = agent.collector.server.backend_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            reported = agent.until("server-down", within_s=20)
        finally:
            os.kill(pid, signal.SIGCONT)
        agent.until_gone("server-down", within_s=20)
    assert (reported.severity, reported.evidence["outage"]) == ("warning", "silent")
    assert reported.text.startswith("PostgreSQL does not answer: ")
