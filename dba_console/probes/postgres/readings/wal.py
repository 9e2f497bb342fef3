"""pg.wal, pg.archiver and pg.io: what the server's own counters say of writing."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.probes.postgres.binary_results import Row, wall_us
from dba_console.probes.postgres.readings.activity import text
from dba_console.samples.postgres import Archiver, IoStat, IoStats, Wal


def wal_of(wal: Sequence[Row], checkpoints: Sequence[Row], files: Sequence[Row]) -> Wal:
    """Each source is one row, or none where this version or this role has it not."""
    records, fpi, size, buffers_full, wal_reset = wal[0] if wal else (None,) * 5
    timed, requested, write_ms, sync_ms, written, by_backends, reset = checkpoints[0] if checkpoints else (None,) * 7
    count, total = files[0] if files else (None, None)
    return Wal(
        records, fpi, size, buffers_full, timed, requested, write_ms, sync_ms, written, by_backends,
        wall_us(wal_reset or reset), count, total,
    )  # fmt: skip


def archiver_of(archiver: Sequence[Row], ready: Sequence[Row]) -> Archiver:
    (enabled, archived, last, last_at, failed, last_failed, last_failed_at, reset, now) = archiver[0]
    return Archiver(
        enabled, archived, text(last), wall_us(last_at), failed, text(last_failed), wall_us(last_failed_at),
        wall_us(reset), ready[0][0] if ready else None, wall_us(now) or 0, wall_us(ready[0][1]) if ready else None,
    )  # fmt: skip


def io_of(rows: Sequence[Row]) -> IoStats:
    """pg_stat_io. Times in milliseconds, 0 where track_io_timing is off."""
    return IoStats(
        [IoStat(kind.decode(), what.decode(), context.decode(), *counters) for kind, what, context, *counters in rows]
    )
