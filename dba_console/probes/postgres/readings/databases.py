"""pg.databases and pg.sizes: pg_stat_database, and how large each database is."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row, wall_us
from dba_console.probes.postgres.oid_names import OidNames, decode_name
from dba_console.samples.postgres import DatabaseStat, DatabaseStats


def database_stats_of(rows: Sequence[Row], names: OidNames) -> DatabaseStats:
    """pg_stat_database. Times in milliseconds; they stay 0 where track_io_timing is off."""
    return DatabaseStats([_stat(row, names) for row in rows])


def _stat(row: Row, names: OidNames) -> DatabaseStat:
    (oid, name, backends, commits, rollbacks, read, hit, returned, fetched, written, conflicts, temp_files, temp_bytes,
     deadlocks, failures, failed_at, read_ms, write_ms, reset) = row  # fmt: skip
    return DatabaseStat(
        oid, None if name is None else decode_name(name, names.codec), backends, commits, rollbacks, read, hit,
        returned, fetched, written, conflicts, temp_files, temp_bytes, deadlocks, failures, wall_us(failed_at),
        read_ms, write_ms, wall_us(reset),
    )  # fmt: skip
