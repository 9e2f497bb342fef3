"""What a session reads and writes: by the server's own count where its process does not read itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from dba_console.watch.samples.sample import Part, Sample
from dba_console.watch.sessions.panel import SessionRow, derive_sessions
from dba_console.watch.wait_events import ASYNC_IO
from tests.background import session, wait_until
from tests.clusters import FreshCluster
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import LIMIT_S, query

BIG = "create table big as select g, repeat('x', 1000) from generate_series(1, 60000) g"
"""67 MB, several times what shared_buffers holds."""


def counted(probe: PostgresProbe, pid: int) -> Any:
    """What the server counts for the session; None if it is not among those that may have reported."""
    return next((row for row in reading(probe, "pg.session_io").rows if row.pid == pid), None)


def shown(pid: int, *readings: list[Part]) -> SessionRow:
    """The row of a session in the panel after these readings."""
    latest = Picture()
    for seq, parts in enumerate(readings, 1):
        at_us = max(part.at_us for part in parts)
        latest = latest.with_sample(Sample(seq, at_us, at_us, parts, "b1"))
    panel = derive_sessions(PictureFacts(latest, ChartHistory()))
    return next(row for row in panel.rows if row.pid == pid)


@pytest.fixture
def with_workers(fresh_cluster: FreshCluster) -> Cluster:
    """A server of 18 that has read nothing of its big table since its start."""
    cluster = fresh_cluster(
        {"io_method": "worker", "shared_buffers": "8MB", "max_parallel_workers_per_gather": "0"}, major=18
    )
    query(cluster, BIG)
    cluster.restart()
    return cluster


def test_what_io_workers_read_for_a_session_counts_as_its_own(with_workers: Cluster) -> None:
    size = int(query(with_workers, "select pg_relation_size('big')"))
    with session(with_workers, name="reader") as reader, connected_probe(with_workers) as probe:
        pid = reader.info.backend_pid
        parts = ("pg.server", "pg.activity", "pg.session_io")
        wait_until(lambda: counted(probe, pid), LIMIT_S, what="the session in the reading")
        before, old = read(probe, *parts), counted(probe, pid)
        reader.execute("select count(*) from big")
        after = read(probe, *parts)

        def reported() -> Any:
            nonlocal after
            after = read(probe, *parts)
            row = next(row for row in after["pg.session_io"].decode().rows if row.pid == pid)
            return row if row.read_bytes > old.read_bytes else None

        new = wait_until(reported, LIMIT_S, what="the reads in the server's count")
        done_itself = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    assert size <= new.read_bytes - old.read_bytes <= 1.1 * size
    assert int(done_itself["rchar"]) < size / 4
    row = shown(pid, list(before.values()), list(after.values()))
    seconds = (after["pg.session_io"].at_us - before["pg.session_io"].at_us) / 1e6
    assert row.read_source == "pg_stat_get_backend_io"
    assert row.read_bytes_per_s == pytest.approx((new.read_bytes - old.read_bytes) / seconds, rel=0.5)


@pytest.mark.pg(18)
def test_who_writes_wal_is_known_by_session(server: Cluster) -> None:
    with session(server, name="writer") as writer, connected_probe(server) as probe:
        pid = writer.info.backend_pid
        old = wait_until(lambda: counted(probe, pid), LIMIT_S, what="the session in the reading")
        writer.execute("create table loaded as select repeat('x', 1000) from generate_series(1, 5000)")
        try:
            new = wait_until(
                lambda: (row := counted(probe, pid)) and row.wal_bytes > old.wal_bytes and row, LIMIT_S, what="its WAL"
            )
        finally:
            writer.execute("drop table loaded")
    assert new.wal_bytes - old.wal_bytes > 5_000_000


@pytest.mark.pg(14, 15, 16, 17)
def test_an_older_server_counts_no_session_and_the_panel_does_not_miss_it(server: Cluster) -> None:
    with session(server, name="idle") as other, connected_probe(server) as probe:
        parts = read(probe, "pg.server", "pg.activity", "pg.session_io")
        row = shown(other.info.backend_pid, list(parts.values()))
    part = parts["pg.session_io"]
    assert (part.status, part.note) == ("unsupported", f"needs PostgreSQL 18, this server is {server.major}")
    assert (row.read_source, row.read_bytes_per_s, row.wal_bytes_per_s) == (None, None, None)


@pytest.mark.pg(18)
def test_each_explained_wait_is_one_of_the_server(server: Cluster) -> None:
    names = query(server, "select string_agg(type || ':' || name, ' ') from pg_wait_events").split()
    assert ASYNC_IO.keys() <= set(names)
