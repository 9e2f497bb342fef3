"""Through PgBouncer: said, with what it costs; everything read; nothing left behind for the next client."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from tests.background import idle_in_transaction
from tests.postgres.pgbouncer import running_pgbouncer
from tests.postgres.probes import connected, connected_probe, read, reading


@pytest.mark.parametrize("mode", ["transaction", "session", "statement"])
def test_everything_is_read_through_a_named_pooler(cluster: Cluster, mode: str) -> None:
    with running_pgbouncer(cluster, mode, admin=True) as conninfo, connected(conninfo) as probe:
        first = read(probe)
        again = read(probe)
        assert probe.backend_pid is None
    good = {"ok"} | ({"unsupported"} if cluster.major < 16 else set())
    assert {part.status for part in first.values()} == good, [part.note for part in first.values()]
    assert {part.status for part in again.values()} == good
    server = first["pg.server"].decode()
    assert server.through.startswith("PgBouncer 1.")
    assert server.through.endswith(f"({mode})")
    assert server.seat == "pooled"
    assert "counts are the server's, not the pooler's clients" in server.local_note


def test_a_pooler_that_reports_nothing_is_named_without_version(cluster: Cluster) -> None:
    with running_pgbouncer(cluster, "transaction", admin=False) as conninfo, connected(conninfo) as probe:
        assert reading(probe, "pg.server").through == "PgBouncer"


def test_no_pooler_is_reported_if_there_is_none(cluster: Cluster) -> None:
    with connected_probe(cluster) as probe:
        assert reading(probe, "pg.server").through is None


def test_session_settings_do_not_stay_on_a_pooled_connection(cluster: Cluster) -> None:
    with running_pgbouncer(cluster, "transaction", admin=False) as conninfo, connected(conninfo) as probe:
        read(probe)
        seen = set()
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as client:
            for _ in range(5):
                row = client.execute(
                    "select current_setting('statement_timeout'), current_setting('default_transaction_read_only'),"
                    " current_setting('transaction_read_only'), current_setting('search_path'),"
                    " (select count(*) from pg_prepared_statements)"
                ).fetchone()
                seen.add(row)
                read(probe, "pg.activity")
    assert seen == {("0", "off", "off", '"$user", public', 0)}


def test_a_full_pooler_reports_that_its_own_slots_are_used_up(cluster: Cluster) -> None:
    with running_pgbouncer(cluster, "session", admin=False, max_clients=2) as conninfo, ExitStack() as clients:
        with pytest.raises(psycopg.OperationalError, match="no more connections"):
            for _ in range(3):
                clients.enter_context(psycopg.connect(conninfo))
        with pytest.raises(ConnectFailed) as failure:
            PostgresProbe(conninfo).connect()
    assert (failure.value.kind, failure.value.limit) == ("no_slots", "pooler")


def test_a_pooler_writes_no_warning_into_the_log(cluster: Cluster) -> None:
    with running_pgbouncer(cluster, "transaction", admin=False) as conninfo, connected(conninfo) as probe:
        before = cluster.log_text().count("WARNING")
        read(probe)
        assert cluster.log_text().count("WARNING") == before


def test_lock_waits_are_ended_through_a_pooler_too(cluster: Cluster) -> None:
    with (
        running_pgbouncer(cluster, "transaction", admin=False) as conninfo,
        connected(conninfo) as probe,
        idle_in_transaction(cluster, "lock table pg_tablespace in access exclusive mode"),
    ):
        part = read(probe, "pg.server")["pg.server"]
    assert part.status == "ok"
    assert "tablespaces not known: a lock on a system catalog was not free within 0.1s" in (part.note or "")
