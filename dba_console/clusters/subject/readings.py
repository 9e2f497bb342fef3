"""Readings of the cluster: nodes and poolers of the configured cluster of this server, each as it last answered.

A node that does not answer keeps its last values and their time; `error` shows that they are not current. Structs are
stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.part import ApplicationName, DatabaseName, HostName, NameKind, PartKind, SlotName

NodeName = Annotated[str, NameKind("node")]

STANDBY_MINIMUM_SETTINGS = (
    "max_connections",
    "max_prepared_transactions",
    "max_locks_per_transaction",
    "max_wal_senders",
    "max_worker_processes",
)
"""A standby with a lower value stops its replay, or does not start (PostgreSQL documentation, "Administrator's
Overview" of hot standby). The reverse matters for a fail-back."""


class Sender(Struct, array_like=True, frozen=True, gc=False):
    """A WAL sender of a node: a row of pg_stat_replication."""

    pid: int
    application: str | None
    client: str | None
    state: str | None
    sync_state: str | None
    replay_lag_s: float | None
    slot: str | None
    """The slot it reads from."""


class NodeSlotNow(Struct, array_like=True, frozen=True, gc=False):
    name: SlotName
    kind: str
    active: bool
    wal_status: str | None
    retained_bytes: int | None


class CutoverMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cutover in progress, as every node of the cluster has it. Times are wall time in microseconds since 1970.

    Stored by name, also in the servers, where other versions of this program read it.
    """

    run: str
    """Id of the run, on `host`."""
    host: str
    operator: str
    cluster: str
    kind: str
    """cutover or failover."""
    old: NodeName
    to: NodeName
    system_identifier: str
    role: str
    """Role whose setting the mark is."""
    begun_us: int
    stage: str = ""
    held_since_us: int | None = None
    """Since when clients are held; None: they are not."""
    limits: dict[DatabaseName, int] = {}
    """CONNECTION LIMIT of each database before it was set to 0."""
    poolers: dict[NodeName, Annotated[tuple[str, ...], NameKind("database")]] = {}
    """Pooler -> databases that were paused."""
    settings: dict[NodeName, dict[str, str]] = {}
    """Pooler -> settings as they were before the cutover changed them."""


class NodeNow(Struct, array_like=True, frozen=True):
    """One server. Times `_us` of this host are monotonic, except `since_us`, which is wall time. None: not known."""

    name: NodeName
    places: tuple[HostName, ...]
    """`host:port` it is reached at: from the configuration, and the address connected to."""
    error: str = ""
    """Why it does not answer; empty if it does."""
    since_us: int | None = None
    """Wall time since when it does not answer."""
    asked_us: int = 0
    """When the newest answer was requested."""
    at_us: int = 0
    """When that answer came; 0 if it has never answered."""
    role_from_us: int = 0
    """When it first answered in this role on the connection it still uses. A server changes from primary to standby
    only by a restart, so it has had the role from then until `asked_us`. Reset for another server."""
    role: Annotated[str, NameKind("text")] | None = None
    """primary or standby."""
    timeline: int | None = None
    system_identifier: str | None = None
    version: str | None = None
    lsn: int | None = None
    """Primary: write position; standby: received position."""
    replayed_lsn: int | None = None
    replay_paused: bool | None = None
    replayed_ago_s: float | None = None
    """Seconds since the last replayed commit, by the server's clock; grows while the primary is idle."""
    receiver: str | None = None
    """Status of a standby's WAL receiver; None if none runs, or this role cannot see it."""
    receiver_slot: SlotName | None = None
    receiver_application: ApplicationName | None = None
    senders: tuple[Sender, ...] = ()
    slots: tuple[NodeSlotNow, ...] = ()
    started_us: int | None = None
    """When the server was started, by its own clock: two nodes with the same value are one server."""
    cutover: CutoverMark | None = None
    """The cutover in progress, as this node has it."""
    starting: bool = False
    """With `error`: its server starts up, recovers from a crash, or shuts down."""

    @property
    def answers(self) -> bool:
        return not self.error and self.at_us > 0


class PoolerDatabase(Struct, array_like=True, frozen=True, gc=False):
    """A database of a pooler, summed over its pools."""

    name: DatabaseName
    host: str | None
    port: str | None
    mode: str | None
    paused: bool | None
    paused_since_us: int | None
    """Wall time at which it was first seen paused."""
    clients_active: int
    clients_waiting: int
    servers: int
    longest_wait_s: float | None


class PoolerNow(Struct, array_like=True, frozen=True):
    """One PgBouncer; `error`, `since_us` and `at_us` as for a node."""

    name: NodeName
    error: str = ""
    since_us: int | None = None
    at_us: int = 0
    databases: tuple[PoolerDatabase, ...] = ()
    missing: tuple[DatabaseName, ...] = ()
    """Configured as routing to the cluster, but unknown to the pooler."""


class ClusterNow(Struct, array_like=True, frozen=True):
    """The cluster (part `cluster`), in the order of the configuration."""

    now_us: int
    """Host wall time of the reading."""
    name: NodeName
    nodes: tuple[NodeNow, ...]
    poolers: tuple[PoolerNow, ...]


class NodeDetails(Struct, array_like=True, frozen=True):
    """Values that change slowly, or are expensive to query."""

    name: NodeName
    at_us: int
    """Monotonic microseconds."""
    settings: dict[str, str]
    archive_ready: int | None
    """WAL files that wait to be archived; None if not read, or archiving is off."""
    archive_failing: bool | None
    history: str | None
    """A primary's timeline history: where earlier timelines ended; None if the role may not read it."""


class ClusterDetails(Struct, array_like=True, frozen=True):
    """The last details of each node (part `cluster.details`)."""

    nodes: tuple[NodeDetails, ...]


PARTS = (
    PartKind("cluster", ClusterNow, 2, "nodes and poolers of the configured cluster"),
    PartKind("cluster.details", ClusterDetails, 20, "settings and archive backlog of the cluster's nodes"),
)
