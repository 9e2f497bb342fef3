"""Readings of the server: PostgreSQL's views and catalogs, under their own names.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved, reused or
removed. Times are microseconds since 1970 by the server's clock; xids are as in the view; None is NULL.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.part import (
    ApplicationName,
    DatabaseName,
    HostName,
    NameKind,
    RelationName,
    TablespaceName,
    UserName,
)

MAX_QUERY_BYTES = 4096
"""Longer queries are cut to this (activity.sql)."""
WITHHELD = '<not read: agent.query_texts = "none">'
"""Replaces a query's text."""


SettingName = Annotated[str, NameKind("text")]


class Setting(Struct, array_like=True, frozen=True):
    """A row of pg_settings that the console uses: value as text in the base unit."""

    name: SettingName
    value: str
    unit: str | None
    source: str


class Role(Struct, array_like=True, frozen=True, gc=False):
    name: UserName
    connection_limit: int
    superuser: bool
    reserved: bool = False
    """Member of pg_use_reserved_connections (16+)."""


class Database(Struct, array_like=True, frozen=True, gc=False):
    oid: int
    name: DatabaseName
    encoding: str
    connection_limit: int
    allow_connections: bool
    is_template: bool
    tablespace: TablespaceName | None = None
    """Default tablespace of its relations; None: in the data directory."""
    restored_from: str | None = None
    """The dump of a restore into it that is not finished (runbook restore)."""


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
    current_user: UserName
    database: DatabaseName
    superuser: bool
    pg_monitor: bool
    signal_backend: bool
    reserved_member: bool
    backend_pid: int
    server_address: HostName | None
    server_port: int | None
    data_directory: str | None
    """None without pg_read_all_settings."""
    settings: list[Setting]
    databases: list[Database]
    roles: list[Role]
    tablespaces: dict[TablespaceName, Annotated[str, NameKind("path")]]
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
    reset_role: str | None = None
    """The role that a setting of the database or the login role had switched to; None: none."""


class Activity(Struct, array_like=True, frozen=True, gc=False):
    """A row of pg_stat_activity."""

    pid: int
    backend_start: int | None
    backend_type: str | None
    database: DatabaseName | None
    user: UserName | None
    application: ApplicationName
    client: HostName | None
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
    relation: RelationName | None
    """schema.name in the connected database, else `database/OID`."""
    wait_start: int | None
    """pg_locks.waitstart (14+), None before 14 or for a wait that just began."""


class HeldLock(Struct, array_like=True, frozen=True):
    """A lock of a blocker: its strongest mode on the object waited for."""

    pid: int
    mode: str
    relation: RelationName | None
    locktype: str


class LockSession(Struct, array_like=True, frozen=True, gc=False):
    """A backend that waits or blocks, identified beyond its pid, which is reused."""

    pid: int
    backend_start: int | None
    """None if not permitted."""


class Locks(Struct, array_like=True, frozen=True):
    """Lock waiters and blockers; empty lists if no session waits."""

    waiters: list[LockWaiter]
    held: list[HeldLock]
    sessions: list[LockSession] = []
    """All of them, without prepared transactions; empty in recordings of older versions."""
