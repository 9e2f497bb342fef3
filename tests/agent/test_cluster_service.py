"""How an agent watches the nodes and poolers of a cluster: which one, over what, and what a node may not do to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from dba_console.agent.collector import Collector
from dba_console.clusters.node_polling import NodePoll
from dba_console.clusters.subject.panel import ClusterPanel, NodeRow
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig, Config, NodeConfig, PoolerConfig
from dba_console.core.target import make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.picture import Picture
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.sql import query

SESSIONS = "select count(*) from pg_stat_activity where application_name = 'dba-console'"
OWN_SESSIONS = "select pid from pg_stat_activity where application_name = 'dba-console' and query like '%row_to_json%'"


class ClusterWatcher:
    """A collector that ticks on request."""

    def __init__(self, dsn: str, **dsns: str) -> None:
        nodes = {name: NodeConfig(dsn=dsn) for name, dsn in dsns.items()}
        self.collector = Collector(make_target(dsn), Config(clusters={"shop": ClusterConfig(nodes=nodes)}))
        self.picture = Picture()

    def panel(self) -> ClusterPanel:
        self.picture = self.picture.with_sample(self.collector.tick())
        return derive(self.picture, ChartHistory()).of(ClusterPanel)

    def node(self, name: str) -> NodeRow | None:
        return next((row for row in self.panel().nodes if row.name == name), None)


@contextmanager
def cluster_watcher(dsn: str, **dsns: str) -> Iterator[ClusterWatcher]:
    made = ClusterWatcher(dsn, **dsns)
    try:
        yield made
    finally:
        made.collector.close()


def test_a_server_with_a_node_address_belongs_to_its_cluster_even_with_another_database(cluster: Cluster) -> None:
    with cluster_watcher(cluster.dsn(dbname="template1"), db1=cluster.dsn()) as watch:
        wait_until(lambda: watch.panel().primary == "db1")


def test_a_server_reached_by_another_name_is_recognised_by_its_system_identifier(cluster: Cluster) -> None:
    other = cluster.dsn().replace(str(cluster.socket_directory), f"{cluster.socket_directory}/")
    with cluster_watcher(other, db1=cluster.dsn()) as watch:
        wait_until(lambda: watch.panel().primary == "db1")


def test_a_server_without_a_configured_cluster_shows_none_and_no_node_is_queried(
    cluster: Cluster, fresh_cluster: FreshCluster
) -> None:
    other = fresh_cluster()
    with cluster_watcher(cluster.dsn(), db1=other.dsn()) as watch:
        wait_until(lambda: watch.panel() and query(other, f"select count(*) from ({OWN_SESSIONS}) x") == "1")
        wait_until(lambda: watch.panel() and query(other, f"select count(*) from ({OWN_SESSIONS}) x") == "0")
        panel = watch.panel()
    assert (panel.status, panel.nodes, panel.name) == ("unsupported", [], None)


def test_each_node_is_queried_over_one_persistent_connection(fresh_cluster: FreshCluster) -> None:
    made = fresh_cluster()
    with cluster_watcher(made.dsn(), db1=made.dsn()) as watch:
        wait_until(lambda: watch.panel().primary == "db1")
        first, *_ = query(made, OWN_SESSIONS).split()
        before = query(made, f"select query_start from pg_stat_activity where pid = {first}")
        wait_until(
            lambda: (
                watch.panel() and query(made, f"select query_start from pg_stat_activity where pid = {first}") != before
            )
        )
        assert first in query(made, OWN_SESSIONS).split()
        assert query(made, SESSIONS) == "2", "the pinned one of the agent and the one of the node"


def test_a_hanging_node_has_a_state_and_delays_no_other(fresh_cluster: FreshCluster) -> None:
    made, hung = fresh_cluster(), fresh_cluster()
    with cluster_watcher(made.dsn(), db1=made.dsn(), db2=hung.dsn()) as watch:
        wait_until(lambda: (row := watch.node("db2")) is not None and row.role == "primary")
        backend = int(query(hung, OWN_SESSIONS))
        os.kill(backend, signal.SIGSTOP)
        try:
            wait_until(lambda: (row := watch.node("db2")) is not None and row.error is not None)
            one, other = watch.panel().nodes
            assert other.error is not None and other.error.startswith("no answer for")
            assert other.role == "primary" and one.error is None and (one.age_s or 0) < (other.age_s or 0)
        finally:
            os.kill(backend, signal.SIGCONT)
        wait_until(lambda: (row := watch.node("db2")) is not None and row.error is None)
        assert int(query(hung, OWN_SESSIONS)) == backend, "the connection is kept"


def test_the_last_free_slots_of_a_node_are_not_taken(cluster: Cluster, fresh_cluster: FreshCluster) -> None:
    small = fresh_cluster({"max_connections": 10})
    sessions = [psycopg.connect(small.dsn()) for _ in range(5)]
    try:
        with cluster_watcher(cluster.dsn(), db1=cluster.dsn(), db2=small.dsn()) as watch:
            wait_until(lambda: (row := watch.node("db2")) is not None and row.error is not None)
            row = watch.node("db2")
            assert row is not None and "1 connections are free there: not connected" in (row.error or "")
            wait_until(lambda: query(small, f"select count(*) from ({OWN_SESSIONS}) x") == "0")
    finally:
        for session in sessions:
            session.close()


@pytest.mark.pg(14, 18)
def test_every_version_also_answers_a_role_without_rights(server: Cluster) -> None:
    query(server, "drop role if exists bare; create role bare login")
    try:
        for user in ("postgres", "bare"):
            poll = NodePoll("db1", NodeConfig(dsn=server.dsn(user=user)), SYSTEM)
            now, details = poll.ask(True)
            poll.close()
            assert details is not None and (now.role, now.timeline, bool(now.lsn)) == ("primary", 1, True)
            assert now.system_identifier is not None and details.settings["max_connections"]
    finally:
        query(server, "drop role bare")


def test_an_unreachable_pooler_has_a_state_with_its_reason(cluster: Cluster) -> None:
    config = ClusterConfig(
        nodes={"db1": NodeConfig(dsn=cluster.dsn())}, poolers={"main": PoolerConfig(dsn="host=127.0.0.1 port=1")}
    )
    collector = Collector(make_target(cluster.dsn()), Config(clusters={"shop": config}))
    try:
        picture = Picture().with_sample(collector.tick())
        for _ in range(200):
            picture = picture.with_sample(collector.tick())
            rows = derive(picture, ChartHistory()).cluster.poolers
            if rows and rows[0].error is not None:
                break
    finally:
        collector.close()
    assert "Connection refused" in (rows[0].error or "") and rows[0].since is not None
