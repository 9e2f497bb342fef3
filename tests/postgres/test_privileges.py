"""A role without pg_monitor: what it may not see says so, with the GRANT, and is not asked each tick."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from tests.background import idle_in_transaction, session, waiting_for_lock
from tests.postgres.probes import EVERYTHING, connected_probe, read, reading
from tests.sql import query

ROLE = 'plain "one"'
GRANT = 'GRANT pg_monitor TO "plain ""one""" would help'


@pytest.fixture
def plain(server: Cluster) -> Iterator[Cluster]:
    """A cluster with a role that has nothing but LOGIN."""
    query(server, 'create role "plain ""one""" login')
    query(server, "create database closed")
    query(server, "revoke connect on database closed from public")
    yield server
    query(server, "drop database closed")
    query(server, 'drop role "plain ""one"""')


def test_hidden_values_are_reported_with_the_required_grant(plain: Cluster) -> None:
    with session(plain, name="other"), connected_probe(plain, user=ROLE) as probe:
        parts = read(probe)
        sessions = parts["pg.activity"].decode()
    assert parts["pg.activity"].status == "ok"
    assert GRANT in (parts["pg.activity"].note or "")
    assert sessions.hidden >= 1
    hidden = next(row for row in sessions.rows if row.query == "<insufficient privilege>" and row.user == "postgres")
    assert (hidden.state, hidden.backend_type, hidden.client) == (None, None, None)
    for name, what in (("pg.archiver", "files waiting to be archived"), ("pg.wal", "size of pg_wal")):
        assert parts[name].status == "ok"
        assert f"{what} not known: permission denied for function" in (parts[name].note or "")
        assert GRANT in (parts[name].note or "")
    assert parts["pg.archiver"].decode().ready_count is None
    assert parts["pg.wal"].decode().wal_files_bytes is None
    assert parts["pg.wal"].decode().checkpoints_timed is not None


def test_server_values_it_cannot_read_are_unknown(plain: Cluster) -> None:
    with connected_probe(plain, user=ROLE) as probe:
        server = reading(probe, "pg.server")
    assert server.data_directory is None
    assert (server.superuser, server.pg_monitor, server.current_user) == (False, False, ROLE)


def test_a_database_it_may_not_connect_to_has_no_size(plain: Cluster) -> None:
    with connected_probe(plain, user=ROLE) as probe:
        part = read(probe, "pg.sizes")["pg.sizes"]
    sizes = {row.name: row.bytes for row in part.decode().rows}
    assert sizes["closed"] is None
    assert sizes["postgres"] is not None
    assert part.note == "sizes unknown: 1 without CONNECT or pg_read_all_stats (in pg_monitor)"


def test_a_permission_error_is_one_log_line_and_not_one_per_tick(plain: Cluster) -> None:
    with connected_probe(plain, user=ROLE) as probe:
        read(probe)
        before = plain.log_text().count("permission denied")
        for _ in range(5):
            parts = read(probe, *EVERYTHING)
        after = plain.log_text()
    assert parts["pg.archiver"].decode().ready_count is None
    assert after.count("permission denied") == before
    assert before >= 2


def test_a_new_grant_is_noticed_after_the_retry_interval(plain: Cluster) -> None:
    with connected_probe(plain, user=ROLE, options=MonitorOptions(retry_refused_s=0.0)) as probe:
        assert reading(probe, "pg.archiver").ready_count is None
        query(plain, 'grant pg_monitor to "plain ""one"""')
        assert reading(probe, "pg.archiver").ready_count == 0


def test_normal_operation_leaves_nothing_in_the_log(server: Cluster) -> None:
    with connected_probe(server) as probe:
        before = server.log_text()
        for _ in range(3):
            read(probe)
    assert server.log_text().count("ERROR") == before.count("ERROR")
    assert server.log_text().count("WARNING") == before.count("WARNING")


def test_waits_are_read_without_pg_monitor(plain: Cluster) -> None:
    query(plain, "create table if not exists held (n int)")
    with (
        idle_in_transaction(plain, "lock table held", name="holder") as holder,
        waiting_for_lock(plain, "select * from held") as waiter,
        connected_probe(plain, user=ROLE) as probe,
    ):
        waits = [(lock.pid, lock.blocked_by) for lock in reading(probe, "pg.locks").waiters]
    query(plain, "drop table held")
    assert waits == [(waiter, [holder])]
