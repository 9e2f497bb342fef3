"""Times of reads and writes: known only where the server measures them."""

from __future__ import annotations

import pytest

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.io.readings import IoStats
from dba_console.watch.probes.postgres.tick_reader import PostgresProbe
from tests.background import wait_until
from tests.postgres.probes import connected_probe, read, reading
from tests.sql import LIMIT_S, query


@pytest.mark.pg(15, 18)
def test_times_of_reads_and_writes_are_unknown_while_they_are_not_tracked(server: Cluster) -> None:
    def timed(probe: PostgresProbe) -> tuple[bool, dict[str, bool]]:
        databases = any(row.blk_read_ms is not None for row in reading(probe, "pg.databases").rows)
        part = read(probe, "pg.io")["pg.io"]
        rows = IoStats([]).rows if part.reading is None else part.decode().rows
        kinds = {row.object for row in rows}
        return databases, {
            kind: any(row.write_ms is not None for row in rows if row.object == kind)
            for kind in sorted(kinds & {"relation", "wal"})
        }

    kinds = ["relation", "wal"] if server.major >= 18 else []
    query(server, "create table written as select 1; checkpoint; drop table written")
    try:
        with connected_probe(server) as probe:
            wait_until(lambda: list(timed(probe)[1]) == kinds, LIMIT_S, what="the server's I/O")
            assert timed(probe) == (False, dict.fromkeys(kinds, False))
            server.reload({"track_io_timing": "on"})
            wait_until(
                lambda: timed(probe) == (True, {kind: kind == "relation" for kind in kinds}),
                LIMIT_S,
                what="times of tables",
            )
            server.reload({"track_wal_io_timing": "on"})
            wait_until(lambda: timed(probe) == (True, dict.fromkeys(kinds, True)), LIMIT_S, what="times of WAL")
    finally:
        server.reload({"track_io_timing": "off", "track_wal_io_timing": "off"})
