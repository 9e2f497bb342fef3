"""What is read about the safety of data: checksums and counters of databases, ages of transaction ids, holders of the
xmin horizon, faults in the catalogs, dead rows.

Times are microseconds since 1970 by the server's clock; xids are as in the view; None is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Struct, structs

from dba_console.core.redact import redact
from dba_console.watch.part import ApplicationName, DatabaseName, NameKind, Query, RelationName, ServerPart


class DatabaseStat(Struct, array_like=True, frozen=True, gc=False):
    """A row of pg_stat_database; datid 0 (shared objects) has name None."""

    oid: int
    name: DatabaseName | None
    numbackends: int
    xact_commit: int
    xact_rollback: int
    blks_read: int
    blks_hit: int
    tup_returned: int
    tup_fetched: int
    tup_written: int
    """tup_inserted + tup_updated + tup_deleted."""
    conflicts: int
    temp_files: int
    temp_bytes: int
    deadlocks: int
    checksum_failures: int | None
    checksum_last_failure: int | None
    blk_read_ms: float | None
    """None where track_io_timing is off."""
    blk_write_ms: float | None
    stats_reset: int | None
    sessions_abandoned: int | None = None
    """Sessions whose connection to the client was lost; None before PostgreSQL 14."""
    sessions_fatal: int | None = None
    sessions_killed: int | None = None


class DatabaseStats(Struct, array_like=True, frozen=True):
    rows: list[DatabaseStat]


class DatabaseXid(Struct, array_like=True, frozen=True, gc=False):
    name: DatabaseName
    xid_age: int
    mxid_age: int


class TableXid(Struct, array_like=True, frozen=True):
    """A table of the connected database with its TOAST table counted in."""

    name: RelationName
    xid_age: int
    mxid_age: int
    pages: int
    last_vacuum: int | None
    last_autovacuum: int | None


class Xids(Struct, array_like=True, frozen=True):
    """Distance to wraparound. next_xid and next_mxid advance with use: their rate is the burn rate."""

    now_us: int
    next_xid: int | None
    """64-bit (epoch included) from pg_snapshot_xmax(pg_current_snapshot()); None on old servers or without rights."""
    next_mxid: int | None
    databases: list[DatabaseXid] = []
    tables: list[TableXid] = []

    def age_of(self, xid: int | None) -> int | None:
        """Return the transactions since `xid`, which has 32 bits; None if it is newer than this reading.

        >>> xids = Xids(now_us=0, next_xid=(1 << 32) + 10, next_mxid=None)
        >>> xids.age_of(4294967290), xids.age_of(200), xids.age_of(None)
        (16, None, None)
        """
        if self.next_xid is None or xid is None:
            return None
        age = (self.next_xid - xid) & 0xFFFFFFFF
        return age if age < 1 << 31 else None


class HorizonHolder(Struct, array_like=True, frozen=True):
    """A holder of the xid horizon."""

    kind: str
    """backend, prepared, slot, standby."""
    who: ApplicationName
    pid: int | None
    xid_age: int | None
    """The larger of age(xid) and age(xmin)."""
    since: int | None
    database: DatabaseName | None = None
    state: str | None = None


class Horizon(Struct, array_like=True, frozen=True):
    rows: list[HorizonHolder]


class ChangedCollation(Struct, array_like=True, frozen=True):
    """A collation whose version has changed since it, or its database, was created."""

    database: DatabaseName | None
    """Database whose default it is; None for a collation of the connected database."""
    name: Annotated[str, NameKind("text")] | None
    """schema.name; None for the default of a database."""
    provider: str
    """libc, icu, builtin."""
    recorded: str
    actual: str


class InvalidIndex(Struct, array_like=True, frozen=True):
    """An index of the connected database that is invalid and not being built or dropped."""

    name: RelationName
    table: RelationName
    ready: bool
    """Every write to the table also maintains it."""
    pages: int


class SequenceUsage(Struct, array_like=True, frozen=True):
    """A sequence of the connected database that has used at least half of its values."""

    name: RelationName
    column: RelationName | None
    """table.column it belongs to (serial, identity); None if it belongs to none."""
    last: int
    start: int
    """Its first possible value, at the opposite end of `stop`."""
    stop: int
    """The last value that sequence and column can hold."""
    increment: int


class CatalogFaults(Struct, array_like=True, frozen=True):
    """Problems of a database found in the catalogs. None: not known."""

    database: DatabaseName
    """The connected database, which `indexes` and `sequences` belong to."""
    collations: list[ChangedCollation] | None = None
    indexes: list[InvalidIndex] | None = None
    sequences: list[SequenceUsage] | None = None
    """Without sequences whose value this role may not read."""


class DeadRows(Struct, array_like=True, frozen=True):
    """A table of the connected database with more dead rows than autovacuum should leave."""

    name: RelationName
    dead: int
    live: int
    trigger: int
    """Dead rows that trigger autovacuum, by the settings of the server and the table's own."""
    enabled: bool
    """False: autovacuum_enabled = off is set on the table."""
    vacuums: int
    """Finished VACUUMs, including those of autovacuum, since the statistics were reset."""
    last_vacuum: int | None


class DeadRowTables(Struct, array_like=True, frozen=True):
    """Tables that autovacuum should have processed, the worst first."""

    database: DatabaseName
    """The connected database, which all of them belong to."""
    rows: list[DeadRows] = []


def without_secrets() -> Callable[[Horizon], Horizon]:
    """Return what masks secrets in the names of holders, which their clients choose."""
    return lambda horizon: Horizon([structs.replace(row, who=redact(row.who)) for row in horizon.rows])


PARTS = (
    ServerPart(
        "pg.databases",
        DatabaseStats,
        every_s=3,
        meaning="pg_stat_database",
        queries=(Query("database_stats", rows="rows"),),
    ),
    ServerPart(
        "pg.horizon",
        Horizon,
        every_s=10,
        meaning="what holds the oldest xmin (xid horizon)",
        queries=(Query("horizon", rows="rows"),),
        needs_all_stats=True,
        finish=without_secrets,
    ),
    ServerPart(
        "pg.xids",
        Xids,
        every_s=30,
        meaning="distance to wraparound",
        queries=(
            Query("xids"),
            Query("xid_databases", rows="databases", missing="ages of databases"),
            Query("xid_tables", rows="tables", missing="oldest tables"),
        ),
    ),
    ServerPart(
        "pg.catalog",
        CatalogFaults,
        every_s=300,
        meaning="collations, invalid indexes and sequences, from the catalogs",
        first=False,
        queries=(
            Query("own_database"),
            Query("collations", rows="collations", missing="collations"),
            Query("invalid_indexes", rows="indexes", missing="invalid indexes"),
            Query("sequences", rows="sequences", missing="sequences"),
        ),
    ),
    ServerPart(
        "pg.dead_rows",
        DeadRowTables,
        every_s=60,
        meaning="tables with more dead rows than autovacuum leaves",
        first=False,
        queries=(Query("own_database"), Query("dead_rows", rows="rows", missing="dead rows")),
    ),
)
