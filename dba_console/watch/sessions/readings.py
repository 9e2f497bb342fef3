"""What is read about sessions: pg_stat_activity, their I/O, and their processes.

The rows of pg_stat_activity are known to all subjects and declared in `samples`. Times are microseconds since 1970 by
the server's clock; None is NULL.
"""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.part import PartKind, Query, ServerPart
from dba_console.watch.samples import host, postgres


class SessionIo(Struct, array_like=True, frozen=True, gc=False):
    """Bytes of a session since its start (18+), without what its open transaction has not reported yet."""

    pid: int
    backend_start: int | None
    xact_age_s: float | None
    """Age of its open transaction; None without one."""
    read_bytes: int | None
    write_bytes: int | None
    """Of tables, indexes and WAL; without temporary files."""
    wal_bytes: int | None
    """WAL it generated, also if another process wrote it to disk."""


class SessionIoStats(Struct, array_like=True, frozen=True):
    """Sessions that may have reported since the last reading."""

    rows: list[SessionIo]


PARTS = (
    PartKind("host.processes", host.Processes, 1, "CPU and I/O of the postmaster's processes"),
    ServerPart(
        "pg.activity",
        postgres.Sessions,
        every_s=1,
        meaning="pg_stat_activity",
        queries=(Query("activity", rows="rows"),),
        needs_all_stats=True,
    ),
    ServerPart(
        "pg.session_io",
        SessionIoStats,
        every_s=2,
        meaning="I/O and WAL of sessions",
        queries=(Query("session_io", rows="rows"),),
        needs_all_stats=True,
    ),
)
