"""Connections that fill: storms, limits, max_connections reached as seen from outside, and what must raise nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster, Settings
from dba_console.watch.findings.rule import find_outage
from dba_console.watch.samples.console import AgentHealth
from tests.background import idle_in_transaction, idle_sessions, session
from tests.clusters import FreshCluster
from tests.findings.collector import LocalAgent, local_agent
from tests.sql import query, wait_for

SMALL: Settings = {"max_connections": 60, "superuser_reserved_connections": 3}
RULES = ("connections-filling", "connection-storm", "connection-limit", "idle-in-transaction")


@contextmanager
def session_pool(cluster: Cluster, count: int, name: str = "shop-web") -> Iterator[None]:
    """`count` sessions of one application."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(session(cluster, name=name))
        yield


def test_a_storm_is_reported_within_five_seconds_with_its_client(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with session_pool(cluster, 10, "web"), local_agent(cluster.dsn(), *RULES, calm_s=5) as agent, ExitStack() as storm:
        storm.enter_context(session_pool(cluster, 44, "invoice-export"))
        agent.until("connection-storm", within_s=5)
        row = agent.until("connections-filling", severity="critical", within_s=15)
    assert agent.ids("critical") == {"connection-storm"}
    assert row.id == "connection-storm"
    assert row.chain == ["connections-filling", "connection-storm"]
    assert "of 57 usable" in row.text and "invoice-export (user postgres) opened 4" in row.text
    assert row.evidence["application"] == "invoice-export"


def test_short_sessions_and_a_starting_pool_are_not_a_storm(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with local_agent(cluster.dsn(), *RULES) as agent:
        for _ in range(8):
            with session_pool(cluster, 10, "cgi"):
                agent.tick()
        with session_pool(cluster, 20, "web"):
            agent.tick(40)
        assert agent.changes == []


def test_an_agent_that_starts_with_a_full_pool_reports_no_storm(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with session_pool(cluster, 40), local_agent(cluster.dsn(), *RULES) as agent:
        agent.tick(30)
        assert agent.changes == []


def test_a_pool_that_reconnects_after_a_restart_raises_no_alarm(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with local_agent(cluster.dsn(), *RULES) as agent:
        agent.tick(5)
        cluster.restart()
        agent.tick(4)
        with session_pool(cluster, 40):
            reported = agent.until("connection-storm", within_s=5)
            agent.tick(3)
        assert {change.finding.severity for change in agent.changes if "storm" in change.finding.id} == {"info"}
    assert "after the server restarted" in reported.text


def test_a_server_nearly_full_names_the_holders_and_clears_when_they_disconnect(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with session_pool(cluster, 49), local_agent(cluster.dsn(), *RULES) as agent:
        row = agent.until("connections-filling", within_s=5)
        assert row.severity == "warning"
        assert "49 are idle sessions of shop-web" in row.text
        assert row.evidence["usable"] == 57
    left = "select not exists (select from pg_stat_activity where application_name = 'shop-web')"
    wait_for(cluster, left)
    with session_pool(cluster, 49), local_agent(cluster.dsn(), *RULES) as agent, ExitStack() as leaving:
        leaving.enter_context(session_pool(cluster, 6, "late"))
        agent.until("connections-filling", severity="critical", within_s=5)
        leaving.close()
        query(cluster, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'shop-web'")
        wait_for(cluster, left)
        agent.until_gone("connections-filling", within_s=40)


def test_a_server_already_full_at_the_start_is_reported_from_the_process_titles(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_connections": 20, "superuser_reserved_connections": 3})
    with session_pool(cluster, 20):
        agent = LocalAgent(cluster.dsn(), only=RULES)
        try:
            row = agent.until("connections-filling", within_s=10)
            own = agent.picture.now("self", AgentHealth)
        finally:
            agent.collector.close()
    assert row.severity == "critical"
    assert own is not None and own.slot_refusals
    assert row.evidence["source"] == "process_titles"
    assert "20 are idle sessions of user postgres" in row.text


def test_a_server_with_german_messages_also_reports_that_no_slot_is_free(
    reused_cluster: FreshCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dba_console.demo.temporary_server.clean_environment",
        lambda home: {**clean_environment(home), "LANGUAGE": "de"},
    )
    cluster = reused_cluster({"max_connections": 20, "superuser_reserved_connections": 3, "lc_messages": "C.UTF-8"})
    with pytest.raises(ConsoleError) as failure:
        query(cluster, "select 1 / 0")
    if "durch Null" not in str(failure.value):
        pytest.skip("this installation of PostgreSQL has no German messages")
    with session_pool(cluster, 20):
        agent = LocalAgent(cluster.dsn(), only=RULES)
        try:
            agent.until("connections-filling", severity="critical", within_s=10)
            outage = find_outage(agent.picture)
        finally:
            agent.collector.close()
    assert outage is not None
    assert (outage.kind, outage.refused_by) == ("no_slots", "server")
    assert "zu viele Verbindungen" in outage.text


def test_a_role_and_a_database_at_their_limits_are_reported_by_name(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    query(cluster, "create role app login connection limit 6")
    query(cluster, "create database shop connection limit 5")
    with idle_sessions(cluster, 5, user="app", dbname="shop"), local_agent(cluster.dsn(), *RULES) as agent:
        agent.until("connection-limit", within_s=10)
        assert [row.id for row in agent.rows] == ["connection-limit:database shop"]
        with idle_sessions(cluster, 1, user="app"):
            agent.tick(10)
            assert {row.id for row in agent.rows} == {"connection-limit:database shop", "connection-limit:role app"}
            assert "(6 of 6); more are refused" in agent.rows[-1].text


def test_a_briefly_idle_transaction_that_blocks_no_session_is_not_a_finding(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster(SMALL)
    with idle_in_transaction(cluster), local_agent(cluster.dsn(), *RULES) as agent:
        agent.tick(20)
        assert agent.changes == []
