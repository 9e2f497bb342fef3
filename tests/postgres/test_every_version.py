"""Every part is read and decodes on every major version, and says what psql says."""

from __future__ import annotations

import pytest
from psycopg import OperationalError

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.samples import postgres
from dba_console.watch.samples.sample import PARTS
from tests.background import idle_in_transaction, session, wait_until
from tests.postgres.probes import EVERYTHING, connected_probe, read, reading
from tests.sql import LIMIT_S, query


def test_every_postgres_part_is_read(server: Cluster) -> None:
    with connected_probe(server) as probe:
        parts = read(probe, waiters=True)
    lacking = {name for name, since in {"pg.io": 16, "pg.session_io": 18}.items() if server.major < since}
    assert {name: part.note for name, part in parts.items() if part.status != "ok"}.keys() == lacking
    assert set(parts) == {name for name in PARTS if name.startswith("pg.")}
    for name, part in parts.items():
        if name not in lacking:
            assert isinstance(part.decode(), PARTS[name].reading)


@pytest.mark.pg(14, 15)
def test_a_view_of_a_newer_version_is_unsupported_with_the_required_version(server: Cluster) -> None:
    with connected_probe(server) as probe:
        part = read(probe, "pg.io")["pg.io"]
    assert (part.status, part.reading) == ("unsupported", None)
    assert part.note == f"needs PostgreSQL 16, this server is {server.major}"


def test_a_quiet_tick_sends_three_statements(server: Cluster) -> None:
    with connected_probe(server) as probe:
        read(probe)
        before = probe.queries
        read(probe, "pg.activity", "pg.locks", "pg.progress")
        assert probe.queries - before == 3  # activity with the clock, progress; no names, nobody waits


def test_the_server_reports_its_identity(server: Cluster) -> None:
    with connected_probe(server) as probe:
        is_now = reading(probe, "pg.server")
    assert isinstance(is_now, postgres.Server)
    assert is_now.version_num // 10000 == server.major
    assert is_now.version == query(server, "show server_version").split()[0]
    assert is_now.system_identifier == query(server, "select system_identifier from pg_control_system()")
    assert is_now.data_directory == str(server.data_directory)
    assert (is_now.superuser, is_now.in_recovery, is_now.timeline, is_now.through) == (True, False, 1, None)
    assert {database.name for database in is_now.databases} >= {"postgres", "template0", "template1"}
    assert {setting.name for setting in is_now.settings} >= {"max_connections", "data_checksums", "block_size"}


def test_sessions_match_pg_stat_activity(server: Cluster) -> None:
    with (
        session(server, name="here"),
        idle_in_transaction(server, "select txid_current() /* open */", name="opened") as pid,
        connected_probe(server) as probe,
    ):
        rows: dict[int, postgres.Activity] = {}

        def same() -> bool:
            """What began or ended between the two looks is in one of them only."""
            rows.clear()
            rows.update((row.pid, row) for row in reading(probe, "pg.activity").rows)
            theirs = query(server, "select pid from pg_stat_activity where pid <> pg_backend_pid()")
            return rows.keys() == set(map(int, theirs.split()))

        wait_until(same, LIMIT_S, what="the sessions of pg_stat_activity")
    opened = rows[pid]
    assert (opened.state, opened.application, opened.user) == ("idle in transaction", "opened", "postgres")
    assert (opened.database, opened.client, opened.query) == ("postgres", "[local]", "select txid_current() /* open */")
    assert opened.backend_xid is not None
    assert opened.wait_event == "ClientRead"
    assert any(row.backend_type == "checkpointer" and row.user is None for row in rows.values())


def test_an_unchanged_session_keeps_its_record_and_a_changed_one_gets_a_new_one(server: Cluster) -> None:
    with session(server, name="mover") as mover, connected_probe(server) as probe:
        pid = mover.info.backend_pid
        mover.execute("select 'first'")
        wait_until(lambda: _query_of(probe, pid) == "select 'first'")
        mover.execute("select 'second'")
        wait_until(lambda: _query_of(probe, pid) == "select 'second'")


def _query_of(probe: object, pid: int) -> str | None:
    rows = reading(probe, "pg.activity").rows  # type: ignore[arg-type]
    return next((row.query for row in rows if row.pid == pid), None)


def test_the_xid_counter_advances_by_the_used_ids(server: Cluster) -> None:
    with connected_probe(server) as probe:
        before = reading(probe, "pg.xids")
        for _ in range(3):
            query(server, "select txid_current()")
        after = reading(probe, "pg.xids")
    assert after.next_xid - before.next_xid >= 3
    assert after.next_mxid is not None
    assert "template0" in {database.name for database in after.databases}
    assert after.tables


def test_the_holder_of_the_horizon_is_named(server: Cluster) -> None:
    begin = "begin isolation level repeatable read; select txid_current()"
    with idle_in_transaction(server, begin, name="holds-it") as pid, connected_probe(server) as probe:
        holders = reading(probe, "pg.horizon").rows
    held = next(row for row in holders if row.pid == pid)
    assert (held.kind, held.who, held.state) == ("backend", "holds-it", "idle in transaction")
    assert held.xid_age is not None
    assert held.since is not None
    assert all(row.who != "dba-console" for row in holders)


def test_sizes_match_those_of_the_server(server: Cluster) -> None:
    with connected_probe(server) as probe:
        parts = read(probe, *EVERYTHING)
        for _ in range(20):
            if "pg.sizes" in parts:
                break
            parts |= read(probe, "pg.activity")
    sizes = {row.name: row.bytes for row in parts["pg.sizes"].decode().rows}
    assert sizes["template0"] == int(query(server, "select pg_database_size('template0')"))


def test_wal_and_checkpoints_have_their_numbers(server: Cluster) -> None:
    with connected_probe(server) as probe:
        wal = reading(probe, "pg.wal")
        before = wal.checkpoints_requested
        query(server, "checkpoint")
        after = reading(probe, "pg.wal").checkpoints_requested
    assert wal.bytes is not None
    assert wal.wal_files >= 1
    assert wal.wal_files_bytes >= 1 << 20
    assert after >= before


def test_sessions_that_do_not_end_normally_are_counted_and_refusals_only_by_the_limit_of_a_database(
    server: Cluster,
) -> None:
    query(server, "create role outside login connection limit 0; create role inside login")
    query(server, "create database closed connection limit 0")
    query(server, "create database busy")
    try:
        with connected_probe(server) as probe:

            def ended(database: str) -> tuple[int | None, int | None]:
                [row] = [row for row in reading(probe, "pg.databases").rows if row.name == database]
                return row.sessions_fatal, row.sessions_killed

            with session(server, dbname="busy") as victim:
                query(server, f"select pg_terminate_backend({victim.info.backend_pid})")
            with pytest.raises(OperationalError, match="too many connections for role"):
                session(server, user="outside", dbname="busy")
            with pytest.raises(OperationalError, match="too many connections for database"):
                session(server, user="inside", dbname="closed")
            wait_until(lambda: ended("busy")[1] == 1, LIMIT_S, what="the session that was terminated")
            wait_until(lambda: ended("closed")[0] == 1, LIMIT_S, what="the connection that was refused")
            assert ended("busy") == (0, 1) and ended("closed") == (1, 0)
    finally:
        for name in ("database closed", "database busy", "role outside", "role inside"):
            query(server, f"drop {name}")


def test_checksum_failures_are_counted_for_each_database_and_the_shared_objects(server: Cluster) -> None:
    with connected_probe(server) as probe:
        rows = reading(probe, "pg.databases").rows
    assert {row.name for row in rows} >= {None, "postgres"}
    assert all(row.checksum_failures == 0 for row in rows)
