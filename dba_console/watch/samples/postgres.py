"""Readings of the server: PostgreSQL's views and catalogs, under their own names.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved, reused or
removed. Times are microseconds since 1970 by the server's clock; xids are as in the view; None is NULL.
"""

from __future__ import annotations

from msgspec import Struct

MAX_QUERY_BYTES = 4096
"""Longer queries are cut to this (activity.sql)."""
WITHHELD = '<not read: agent.query_texts = "none">'
"""Replaces a query's text."""


class Setting(Struct, array_like=True, frozen=True):
    """A row of pg_settings that the console uses: value as text in the base unit."""

    name: str
    value: str
    unit: str | None
    source: str


class Role(Struct, array_like=True, frozen=True, gc=False):
    name: str
    connection_limit: int
    superuser: bool
    reserved: bool = False
    """Member of pg_use_reserved_connections (16+)."""


class Database(Struct, array_like=True, frozen=True, gc=False):
    oid: int
    name: str
    encoding: str
    connection_limit: int
    allow_connections: bool
    is_template: bool
    tablespace: str | None = None
    """Default tablespace of its relations; None: in the data directory."""


class Server(Struct, array_like=True, frozen=True):
    """Identity and settings of the server: read at connect and every 30 s."""

    version_num: int
    version: str
    system_identifier: str | None
    in_recovery: bool
    timeline: int | None
    start_us: int
    now_us: int
    """The server's clock at the reading: its offset to the host's wall time shows whether the clocks differ."""
    current_user: str
    database: str
    superuser: bool
    pg_monitor: bool
    signal_backend: bool
    reserved_member: bool
    backend_pid: int
    server_address: str | None
    server_port: int | None
    data_directory: str | None
    """None without pg_read_all_settings."""
    settings: list[Setting]
    databases: list[Database]
    roles: list[Role]
    tablespaces: dict[str, str]
    """Name -> location; pg_default and pg_global are in the data directory and not listed."""
    extensions: list[str] = []
    seat: str = "regular"
    """The slot this connection took: regular, reserved_role (reserved_connections), superuser."""
    through: str | None = None
    """`PgBouncer 1.21 (transaction)` if connected through a pooler, else None."""
    local: bool | None = None
    """True: proven to run on this host; False: proven elsewhere; None: not decided."""
    local_note: str | None = None
    """How `local` is known, or why the host panels are empty and what would help."""


class Activity(Struct, array_like=True, frozen=True, gc=False):
    """A row of pg_stat_activity."""

    pid: int
    backend_start: int | None
    backend_type: str | None
    database: str | None
    user: str | None
    application: str
    client: str | None
    """Address, `[local]` for a unix socket, None if not permitted."""
    state: str | None
    xact_start: int | None
    query_start: int | None
    state_change: int | None
    wait_event_type: str | None
    wait_event: str | None
    backend_xid: int | None
    backend_xmin: int | None
    leader_pid: int | None
    query_id: int | None
    query: str
    """Its first 4 kB, decoded by its database's encoding (else \\xNN), redacted, or reduced by `agent.query_texts`."""
    query_bytes: int | None = None
    """Full length if `query` is cut, limited by track_activity_query_size; None if not cut."""


class Sessions(Struct, array_like=True, frozen=True):
    """All rows of pg_stat_activity, with the server's time of the reading."""

    now_us: int
    rows: list[Activity]
    hidden: int = 0
    """Rows whose state and query this role may not see (`<insufficient privilege>`)."""


class LockWaiter(Struct, array_like=True, frozen=True):
    """A backend that waits for a heavyweight lock."""

    pid: int
    blocked_by: list[int]
    """pg_blocking_pids(pid): hard and soft blockers; 0 stands for a prepared transaction."""
    locktype: str
    mode: str
    relation: str | None
    """schema.name in the connected database, else `database/OID`."""
    wait_start: int | None
    """pg_locks.waitstart (14+), None before 14 or for a wait that just began."""


class HeldLock(Struct, array_like=True, frozen=True):
    """A lock of a blocker: its strongest mode on the object waited for."""

    pid: int
    mode: str
    relation: str | None
    locktype: str


class Locks(Struct, array_like=True, frozen=True):
    """Lock waiters and blockers; empty lists if no session waits."""

    waiters: list[LockWaiter]
    held: list[HeldLock]


class Operation(Struct, array_like=True, frozen=True):
    """A row of a pg_stat_progress_* view."""

    kind: str
    """copy, create_index, vacuum, analyze, cluster, basebackup, data_checksums."""
    pid: int
    database: str | None
    object: str | None
    phase: str | None
    done: int | None
    total: int | None
    """None (or the view's 0) if the server does not know the total."""
    unit: str
    """blocks, tuples, bytes, child tables, lockers."""
    detail: dict[str, int | str | None]
    """The remaining columns of the view."""


class Operations(Struct, array_like=True, frozen=True):
    rows: list[Operation]


class Standby(Struct, array_like=True, frozen=True):
    """A row of pg_stat_replication. LSNs as 64-bit byte positions."""

    pid: int
    backend_start: int | None
    user: str | None
    application: str
    client: str | None
    state: str | None
    sent_lsn: int | None
    write_lsn: int | None
    flush_lsn: int | None
    replay_lsn: int | None
    write_lag_s: float | None
    flush_lag_s: float | None
    replay_lag_s: float | None
    sync_state: str | None
    backend_xmin: int | None


class Slot(Struct, array_like=True, frozen=True):
    """A row of pg_replication_slots; unread_since as SlotRow.unread_s; synced: a copy of the primary's slot."""

    name: str
    kind: str
    database: str | None
    active_pid: int | None
    temporary: bool
    xmin: int | None
    catalog_xmin: int | None
    restart_lsn: int | None
    confirmed_flush_lsn: int | None
    wal_status: str | None
    safe_wal_size: int | None
    inactive_since: int | None = None
    invalidation_reason: str | None = None
    synced: bool | None = None
    unread_since: int | None = None


class Replication(Struct, array_like=True, frozen=True):
    """Positions, standbys, slots. On a primary lsn is the write position, on a standby the last one replayed."""

    now_us: int
    in_recovery: bool
    lsn: int | None
    receive_lsn: int | None
    """Standby: last position received and flushed."""
    replay_at: int | None
    """Standby: commit time of the last transaction replayed."""
    replay_paused: bool | None
    receiver_status: str | None
    receiver_host: str | None
    receiver_latest_end_lsn: int | None
    timeline: int | None
    standbys: list[Standby]
    slots: list[Slot]
    receiver_pid: int | None = None
    """Standby: the WAL receiver, visible to every role; its status and host need pg_read_all_stats."""
    primary_conninfo_set: bool | None = None
    """Standby: it should receive WAL from a primary. None without pg_read_all_settings."""
    restore_command_set: bool | None = None
    """Standby: it may take WAL from an archive."""

    @property
    def has_receiver(self) -> bool:
        """Whether a WAL receiver runs and is registered; one that cannot connect ends before that."""
        return self.receiver_pid is not None or self.receiver_status is not None


class Archiver(Struct, array_like=True, frozen=True):
    """pg_stat_archiver, and the files that wait in archive_status."""

    enabled: bool
    archived_count: int
    last_archived_wal: str | None
    last_archived_at: int | None
    failed_count: int
    last_failed_wal: str | None
    last_failed_at: int | None
    stats_reset: int | None
    ready_count: int | None
    """Files .ready in archive_status; None without the right to list it."""
    now_us: int = 0
    oldest_ready_at: int | None = None
    """Time when the oldest of them became ready."""


class Wal(Struct, array_like=True, frozen=True):
    """pg_stat_wal (14+) and the checkpointer's counters, from the view of this version."""

    records: int | None
    fpi: int | None
    bytes: int | None
    buffers_full: int | None
    checkpoints_timed: int | None
    checkpoints_requested: int | None
    checkpoint_write_ms: float | None
    checkpoint_sync_ms: float | None
    buffers_checkpoint: int | None
    buffers_backend: int | None
    stats_reset: int | None
    wal_files: int | None = None
    """Files in pg_wal and their bytes, from pg_ls_waldir()."""
    wal_files_bytes: int | None = None


class DatabaseStat(Struct, array_like=True, frozen=True, gc=False):
    """A row of pg_stat_database; datid 0 (shared objects) has name None."""

    oid: int
    name: str | None
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
    blk_read_ms: float
    blk_write_ms: float
    stats_reset: int | None
    sessions_abandoned: int | None = None
    """Sessions whose connection to the client was lost; None before PostgreSQL 14."""
    sessions_fatal: int | None = None
    sessions_killed: int | None = None


class DatabaseStats(Struct, array_like=True, frozen=True):
    rows: list[DatabaseStat]


class IoStat(Struct, array_like=True, frozen=True):
    """A row of pg_stat_io (16+) with any activity. Bytes from counts times op_bytes before 18."""

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


class DatabaseXid(Struct, array_like=True, frozen=True, gc=False):
    name: str
    xid_age: int
    mxid_age: int


class TableXid(Struct, array_like=True, frozen=True):
    """A table of the connected database with its TOAST table counted in."""

    name: str
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
    databases: list[DatabaseXid]
    tables: list[TableXid]


class HorizonHolder(Struct, array_like=True, frozen=True):
    """A holder of the xid horizon."""

    kind: str
    """backend, prepared, slot, standby."""
    who: str
    pid: int | None
    xid_age: int | None
    """The larger of age(xid) and age(xmin)."""
    since: int | None
    database: str | None = None
    state: str | None = None


class Horizon(Struct, array_like=True, frozen=True):
    rows: list[HorizonHolder]


class DatabaseSize(Struct, array_like=True, frozen=True, gc=False):
    name: str
    bytes: int | None


class Sizes(Struct, array_like=True, frozen=True):
    rows: list[DatabaseSize]


class TempDirectory(Struct, array_like=True, frozen=True, gc=False):
    """Temporary files of one backend in one tablespace, as pg_ls_tmpdir() lists them."""

    tablespace: str
    pid: int | None
    """Their backend, from the file name; None if not in the name."""
    files: int
    bytes: int


class TempFiles(Struct, array_like=True, frozen=True):
    """Temporary files now open, the largest first."""

    rows: list[TempDirectory]
    closed_bytes: int | None = None
    """temp_bytes of pg_stat_database over all databases: bytes of files already closed."""


# Catalog problems that queries do not show yet. Same storage rules as above.


class ChangedCollation(Struct, array_like=True, frozen=True):
    """A collation whose version has changed since it, or its database, was created."""

    database: str | None
    """Database whose default it is; None for a collation of the connected database."""
    name: str | None
    """schema.name; None for the default of a database."""
    provider: str
    """libc, icu, builtin."""
    recorded: str
    actual: str


class InvalidIndex(Struct, array_like=True, frozen=True):
    """An index of the connected database that is invalid and not being built or dropped."""

    name: str
    table: str
    ready: bool
    """Every write to the table also maintains it."""
    pages: int


class SequenceUsage(Struct, array_like=True, frozen=True):
    """A sequence of the connected database that has used at least half of its values."""

    name: str
    column: str | None
    """table.column it belongs to (serial, identity); None if it belongs to none."""
    last: int
    start: int
    """Its first possible value, at the opposite end of `stop`."""
    stop: int
    """The last value that sequence and column can hold."""
    increment: int


class CatalogFaults(Struct, array_like=True, frozen=True):
    """Problems of a database found in the catalogs. None: not known."""

    database: str
    """The connected database, which `indexes` and `sequences` belong to."""
    collations: list[ChangedCollation]
    indexes: list[InvalidIndex] | None
    sequences: list[SequenceUsage] | None
    """Without sequences whose value this role may not read."""


class Subscription(Struct, array_like=True, frozen=True):
    """A row of pg_subscription, of any database."""

    name: str
    database: str | None
    enabled: bool
    has_slot: bool
    worker_pid: int | None
    """Its apply worker; None if none runs."""
    apply_errors: int | None
    """Counted since the statistics were reset (15+); None before."""
    sync_errors: int | None
    disable_on_error: bool


class Subscriptions(Struct, array_like=True, frozen=True):
    rows: list[Subscription]


class DeadRows(Struct, array_like=True, frozen=True):
    """A table of the connected database with more dead rows than autovacuum should leave."""

    name: str
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

    database: str
    """The connected database, which all of them belong to."""
    rows: list[DeadRows]
