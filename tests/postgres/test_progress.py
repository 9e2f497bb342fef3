"""What is under way, while it is under way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.progress.decoder import measure
from dba_console.watch.progress.readings import Operation
from tests.background import idle_in_transaction, session, wait_until, waiting_for_lock
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, reading
from tests.sql import query

HELD = """
create function held(i int) returns int immutable language plpgsql as
'begin
  if i = 5 then perform pg_advisory_lock_shared(4712); perform pg_advisory_unlock_shared(4712); end if;
  return i;
end';
create table rewritten as select generate_series(1, 9) i;
create index on rewritten (i);
create index on rewritten (held(i));
"""
"""A table whose second index is not built while the lock is held."""


@pytest.fixture
def orders(server: Cluster) -> Iterator[Cluster]:
    query(server, "create table orders as select generate_series(1, 1000) n")
    yield server
    query(server, "drop table orders")


def operation(probe: PostgresProbe, pid: int) -> Operation:
    """What the process does now; it must be doing something."""
    [row] = [row for row in reading(probe, "pg.progress").rows if row.pid == pid]
    assert isinstance(row, Operation)
    return row


def has_done(row: Operation) -> Operation | None:
    return row if row.done else None


def test_without_operations_the_reading_is_empty(server: Cluster) -> None:
    with connected_probe(server) as probe:
        assert reading(probe, "pg.progress").rows == []


def test_a_copy_from_a_pipe_reports_its_bytes_without_a_total(orders: Cluster) -> None:
    with (
        session(orders) as loader,
        connected_probe(orders) as probe,
        loader.cursor().copy("copy orders from stdin") as copy,
    ):
        for number in range(50_000):
            copy.write_row([number])
        row = wait_until(lambda: has_done(operation(probe, loader.info.backend_pid)), what="the first bytes")
    assert (row.kind, row.object, row.database, row.unit) == ("copy", "public.orders", "postgres", "bytes")
    assert row.done is not None
    assert row.done > 0
    assert row.total is None
    assert row.detail["type"] == "PIPE"


def test_a_table_copied_out_has_the_progress_of_its_estimated_rows(server: Cluster) -> None:
    query(server, "create table wide as select i, repeat('x', 200) as filler from generate_series(1, 50000) i")
    query(server, "analyze wide")
    try:
        with (
            session(server) as reader,
            connected_probe(server) as probe,
            reader.cursor().copy("copy wide to stdout") as copy,
        ):
            copy.read()
            row = wait_until(lambda: has_done(operation(probe, reader.info.backend_pid)), what="the first bytes")
            for _ in copy:
                pass
    finally:
        query(server, "drop table wide")
    assert row.total is None and row.detail["reltuples"] == 50_000
    assert 0 < int(row.detail["tuples_processed"] or 0) < 50_000
    assert 0 < (row.pct or 0) < 100


def test_a_rewrite_counts_its_built_indexes_and_their_total(server: Cluster) -> None:
    query(server, HELD)
    try:
        with session(server) as keeper:
            keeper.execute("select pg_advisory_lock(4712)")
            with waiting_for_lock(server, "vacuum full rewritten") as pid, connected_probe(server) as probe:
                row = operation(probe, pid)
                keeper.execute("select pg_advisory_unlock(4712)")
    finally:
        query(server, "drop table rewritten; drop function held(int)")
    assert (row.kind, row.object, row.phase) == ("cluster", "public.rewritten", "rebuilding index")
    assert (row.done, row.total, row.unit) == (1, 2, "indexes")
    assert row.detail["command"] == "VACUUM FULL"


def test_an_index_that_waits_for_a_transaction_counts_lockers(orders: Cluster) -> None:
    with (
        idle_in_transaction(orders, "update orders set n = n where n = 1"),
        waiting_for_lock(orders, "create index concurrently on orders (n)") as pid,
        connected_probe(orders) as probe,
    ):
        row = operation(probe, pid)
    assert (row.kind, row.phase, row.unit) == ("create_index", "waiting for writers before build", "lockers")
    assert (row.done, row.total) == (0, 1)
    assert row.detail["command"] == "CREATE INDEX CONCURRENTLY"


def test_a_vacuum_without_waits_is_measured_in_blocks_of_its_phase() -> None:
    columns = {"phase": "scanning heap", "heap_blks_scanned": 30, "heap_blks_total": 100, "heap_blks_vacuumed": 5}
    assert measure("vacuum", columns) == (30, 100, "blocks")
    assert measure("vacuum", {**columns, "phase": "vacuuming heap"}) == (5, 100, "blocks")


@pytest.mark.parametrize(
    ("phase", "columns", "measured"),
    [
        ("building index: scanning table", {"blocks_done": 3, "blocks_total": 9, "tuples_total": 0}, (3, 9, "blocks")),
        ("building index: loading tuples in tree", {"tuples_done": 4, "tuples_total": 8}, (4, 8, "tuples")),
        ("building index: sorting live tuples", {"blocks_total": 0, "tuples_total": 0}, (None, None, "blocks")),
    ],
)
def test_an_index_build_is_measured_by_the_counters_of_its_phase(
    phase: str, columns: dict[str, int], measured: tuple[int | None, int | None, str]
) -> None:
    assert measure("create_index", {"phase": phase, **columns}) == measured


def test_a_progress_view_of_a_later_version_is_shown_without_a_measure() -> None:
    assert measure("defragment", {"phase": "thinking"}) == (None, None, "blocks")


def test_an_unknown_progress_view_is_found_in_the_catalog(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"allow_system_table_mods": "on"})
    query(
        cluster,
        "create view pg_catalog.pg_stat_progress_thaw as"
        " select 42 as pid, 0::oid as datid, 'melting' as phase, 7 as floes_done, true as warm",
    )
    try:
        with connected_probe(cluster) as probe:
            row = operation(probe, 42)
    finally:
        query(cluster, "drop view pg_catalog.pg_stat_progress_thaw")
    assert (row.kind, row.phase, row.database, row.done) == ("thaw", "melting", None, None)
    assert row.detail == {"floes_done": 7, "warm": "True"}
