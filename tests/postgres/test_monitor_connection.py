"""The monitor's connection is polite: limits, read-only, named, and nothing said in the log about it."""

from __future__ import annotations

import pytest

from dba_console.core.clock import SYSTEM
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.connection import connect
from dba_console.watch.probes.postgres.pipeline import Command, Segment, SegmentAnswer
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, reading
from tests.sql import query, wait_for

MONITOR_SETTINGS = {
    "application_name": "dba-console",
    "client_encoding": "SQL_ASCII",
    "statement_timeout": "2s",
    "lock_timeout": "100ms",
    "default_transaction_read_only": "on",
    "idle_in_transaction_session_timeout": "0",
    "search_path": "pg_catalog, pg_temp",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}


def answer_to(conninfo: str, sql: str) -> SegmentAnswer:
    """The answer to one query over a connection made as the probe makes it."""
    connection = connect(conninfo, MonitorOptions(), SYSTEM)
    try:
        connection.pipeline.send([Segment("test", (Command("test", sql.encode()),))])
        [answer] = connection.pipeline.collect(SYSTEM.mono_us() + 5_000_000)
        return answer
    finally:
        connection.pipeline.close()


@pytest.mark.parametrize("user", ["postgres", "modest"])
def test_the_session_setup_is_the_same_for_every_role(server: Cluster, user: str) -> None:
    query(server, "drop role if exists modest; create role modest login")
    before = server.log_text()
    settings = "select " + ", ".join(f"current_setting('{name}')" for name in MONITOR_SETTINGS)
    answer = answer_to(server.dsn(user=user), settings)
    query(server, "drop role modest")
    assert dict(zip(MONITOR_SETTINGS, (value.decode() for value in answer.rows[0][0]), strict=True)) == MONITOR_SETTINGS
    assert server.log_text().count("ERROR") == before.count("ERROR")


def test_the_session_cannot_change_anything(cluster: Cluster) -> None:
    error = answer_to(cluster.dsn(), "create table public.ours (n int)").error
    assert error is not None
    assert error.sqlstate == "25006"


def test_its_queries_are_not_tracked_if_that_may_be_set(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"shared_preload_libraries": "pg_stat_statements"})
    query(cluster, "create role modest login")
    setting = "select current_setting('pg_stat_statements.track')"
    assert answer_to(cluster.dsn(), setting).rows == [[(b"none",)]]
    assert answer_to(cluster.dsn(user="modest"), setting).rows == [[(b"top",)]]


def test_options_in_the_connection_string_apply_except_the_application_name(cluster: Cluster) -> None:
    conninfo = cluster.dsn(application_name="theirs", options="-c work_mem=1MB")
    answer = answer_to(conninfo, "select current_setting('work_mem'), current_setting('application_name')")
    assert answer.rows == [[(b"1MB", b"dba-console")]]


def test_a_failing_query_hides_no_other(cluster: Cluster) -> None:
    connection = connect(cluster.dsn(), MonitorOptions(), SYSTEM)
    try:
        queries = {"good": b"select 1", "bad": b"select 1/0", "worse": b"nonsense", "fine": b"select 2"}
        connection.pipeline.send([Segment(name, (Command(name, sql),)) for name, sql in queries.items()])
        answers = {answer.key: answer for answer in connection.pipeline.collect(SYSTEM.mono_us() + 5_000_000)}
    finally:
        connection.pipeline.close()
    assert [answers[name].rows for name in ("good", "fine")] == [[[(1,)]], [[(2,)]]]
    failures = [answers[name].error for name in ("bad", "worse")]
    assert [failure.sqlstate for failure in failures if failure is not None] == ["22012", "42601"]


def test_the_console_uses_one_session_and_recognises_it(cluster: Cluster) -> None:
    wait_for(cluster, "select not exists (select from pg_stat_activity where application_name = 'dba-console')")
    with connected_probe(cluster) as probe:
        rows = [row for row in reading(probe, "pg.activity").rows if row.application == "dba-console"]
        assert [row.pid for row in rows] == [probe.backend_pid]


def test_a_slot_is_freed_soon_after_a_network_loss(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, "create role modest login password 'known'")
    dsn = f"host=127.0.0.1 port={cluster.port} user=modest password=known dbname=postgres sslmode=disable"
    before = cluster.log_text().count("WARNING")
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    answer = answer_to(dsn, "select " + ", ".join(f"current_setting('{name}')" for name in names))
    assert answer.rows == [[(b"10", b"5", b"3")]]
    assert cluster.log_text().count("WARNING") == before
