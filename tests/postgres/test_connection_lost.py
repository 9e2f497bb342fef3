"""The connection when server or network fail: reported in a sentence within the deadline, slot kept."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.samples.sample import Part
from tests.background import session, wait_until
from tests.clusters import FreshCluster
from tests.postgres.probes import connected, connected_probe, read
from tests.postgres.proxy import Proxy
from tests.sql import query

SHORT_TIMEOUTS = MonitorOptions(answer_timeout_s=0.2, connect_timeout_s=60.0)
SHORT = MonitorOptions(connect_timeout_s=1.0)


@contextmanager
def stopped_process(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_killed_server_is_a_lost_connection_and_can_be_reconnected(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with connected_probe(cluster) as probe:
        read(probe)
        first = probe.backend_pid
        cluster.kill()
        with pytest.raises(ConnectionLost, match=r"^lost: .+"):
            read(probe)
        assert not probe.connected
        with pytest.raises(ConnectFailed) as failure:
            probe.connect()
        assert failure.value.kind == "refused"
        cluster.start()
        probe.connect()
        assert read(probe)["pg.activity"].status == "ok"
        assert probe.backend_pid != first


def test_the_last_error_of_the_server_is_kept(cluster: Cluster) -> None:
    with connected_probe(cluster) as probe:
        read(probe, "pg.activity")
        query(cluster, f"select pg_terminate_backend({probe.backend_pid}, 5000)")
        with pytest.raises(ConnectionLost, match="terminating connection due to administrator command"):
            read(probe, "pg.activity")


def test_a_frozen_backend_costs_a_deadline_and_not_the_connection_slot(cluster: Cluster) -> None:
    with connected_probe(cluster, options=SHORT_TIMEOUTS) as probe:
        read(probe, "pg.activity", "pg.progress")
        pid = probe.backend_pid
        assert pid is not None
        with stopped_process(pid):
            late = read(probe, "pg.activity", "pg.progress")
            again = read(probe, "pg.activity", "pg.progress")
        assert [part.status for part in late.values()] == ["timeout", "timeout"]
        assert late["pg.activity"].reading is None
        assert "the connection is kept" in (again["pg.activity"].note or "")
        parts = wait_until(lambda: _answered(probe))
        assert parts["pg.activity"].status == "ok"
        assert probe.backend_pid == pid


def _answered(probe: PostgresProbe) -> dict[str, Part]:
    parts = read(probe, "pg.activity")
    return parts if parts["pg.activity"].status == "ok" else {}


def test_a_late_answer_comes_with_the_next_read(cluster: Cluster) -> None:
    with connected_probe(cluster, options=SHORT_TIMEOUTS) as probe:
        read(probe, "pg.activity", "pg.databases")
        pid = probe.backend_pid
        assert pid is not None
        with stopped_process(pid):
            assert read(probe, "pg.databases")["pg.databases"].status == "timeout"
        came: dict[str, Part] = {}

        def both() -> bool:
            came.update(read(probe, "pg.activity"))
            return "pg.databases" in came and came["pg.activity"].status == "ok"

        wait_until(both, what="the late answer and the new one")
    assert came["pg.databases"].status == "ok"


def test_a_server_silent_for_too_long_is_disconnected(cluster: Cluster) -> None:
    options = MonitorOptions(answer_timeout_s=0.05, max_silence_s=0.2)
    with connected_probe(cluster, options=options) as probe:
        pid = probe.backend_pid
        assert pid is not None
        with stopped_process(pid), pytest.raises(ConnectionLost, match="no answer from the server for"):
            for _ in range(50):
                read(probe, "pg.activity")
        assert not probe.connected


def test_a_network_outage_is_late_first_and_then_disconnected(cluster: Cluster) -> None:
    options = MonitorOptions(answer_timeout_s=0.05, max_silence_s=0.2)
    with Proxy(cluster) as proxy, connected(proxy.dsn(), options) as probe:
        read(probe, "pg.activity")
        proxy.cut()
        assert read(probe, "pg.activity")["pg.activity"].status == "timeout"
        with pytest.raises(ConnectionLost, match="closing the connection"):
            for _ in range(50):
                read(probe, "pg.activity")


def test_a_server_that_accepts_and_stays_silent_is_a_timeout(cluster: Cluster) -> None:
    with Proxy(cluster) as proxy:
        proxy.cut()
        probe = PostgresProbe(proxy.dsn(), SHORT)
        with pytest.raises(ConnectFailed) as failure:
            probe.connect()
    assert failure.value.kind == "timeout"


def test_a_frozen_postmaster_is_a_timeout(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    cluster.sigstop()
    try:
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(cluster.dsn(), SHORT).connect()
    finally:
        cluster.sigcont()
    assert failure.value.kind == "timeout"


def test_a_failed_connect_leaves_nothing_open(cluster: Cluster) -> None:
    gc.collect()  # what an earlier test left open is closed now, and not between the two counts
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ConnectFailed):
            PostgresProbe(cluster.dsn(dbname="there is none")).connect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("conninfo", "kind"),
    [
        ("host=/nowhere port=1 user=u dbname=d", "refused"),
        ("host=127.0.0.1 port=1 user=u dbname=d", "refused"),
        ("host=no.such.host.invalid user=u dbname=d", "unknown_host"),
        ("host=x nonsense=1", "other"),
    ],
)
def test_a_failure_before_any_server_is_reached_has_its_kind(conninfo: str, kind: str) -> None:
    with pytest.raises(ConnectFailed) as failure:
        PostgresProbe(conninfo, SHORT_TIMEOUTS).connect()
    assert failure.value.kind == kind


def test_a_password_is_in_no_repr_and_no_message(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, "alter role postgres password 'of a test'")
    probe = PostgresProbe(f"host=127.0.0.1 port={cluster.port} user=postgres password=hunter2", SHORT_TIMEOUTS)
    with pytest.raises(ConnectFailed) as failure:
        probe.connect()
    assert failure.value.kind == "auth"
    assert "hunter2" not in f"{failure.value} {failure.value!r} {probe!r}"


def test_a_timeout_of_the_first_query_is_not_reported_as_a_missing_database(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    query(cluster, "create role hasty login")
    query(cluster, "alter role hasty set statement_timeout = 20")
    with session(cluster) as holder:
        holder.execute("begin")
        holder.execute("lock table pg_catalog.pg_settings in access exclusive mode")
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(cluster.dsn(user="hasty")).connect()
    assert failure.value.message.startswith("connected, but the first query failed: ")
    assert "statement_timeout" in (failure.value.hint or "")


def test_a_missing_role_or_database_is_an_auth_error(cluster: Cluster) -> None:
    for conninfo in (cluster.dsn(user="nobody here"), cluster.dsn(dbname="nothing here")):
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(conninfo).connect()
        assert failure.value.kind == "auth"
        assert "does not exist" in failure.value.message
