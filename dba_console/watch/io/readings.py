"""What is read about I/O: CPU times, pressure and block devices of the kernel, and pg_stat_io."""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.part import PartKind, Query, ServerPart
from dba_console.watch.samples import host


class IoStat(Struct, array_like=True, frozen=True):
    """A row of pg_stat_io (16+) with any activity. Bytes from counts times op_bytes before 18. Times are None where
    track_io_timing, or for WAL track_wal_io_timing, is off."""

    backend_type: str
    object: str
    context: str
    reads: int | None
    read_bytes: int | None
    read_ms: float | None
    writes: int | None
    write_bytes: int | None
    write_ms: float | None
    extends: int | None
    hits: int | None
    evictions: int | None
    fsyncs: int | None
    fsync_ms: float | None


class IoStats(Struct, array_like=True, frozen=True):
    rows: list[IoStat]


PARTS = (
    PartKind("host.cpu", host.Cpu, 1, "CPU times, iowait, blocked processes"),
    PartKind("host.pressure", host.Pressure, 1, "pressure stall information"),
    PartKind("host.disks", host.Disks, 1, "block devices"),
    ServerPart("pg.io", IoStats, every_s=10, meaning="pg_stat_io", queries=(Query("io", rows="rows"),)),
)
