"""Nodes and poolers of the configured cluster that the watched server belongs to, each as it answered last.

A node that does not answer keeps what it said last, with the time of that: `error` says that it is not so now. Structs
are stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.
"""

from __future__ import annotations

from msgspec import Struct

STANDBY_MINIMUM_SETTINGS = (
    "max_connections",
    "max_prepared_transactions",
    "max_locks_per_transaction",
    "max_wal_senders",
    "max_worker_processes",
)
"""A standby on which one is lower stops its replay, or does not start (PostgreSQL documentation, "Administrator's
Overview" of hot standby). The other way round it holds for the way back."""


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
    name: str
    kind: str
    active: bool
    wal_status: str | None
    retained_bytes: int | None


class NodeNow(Struct, array_like=True, frozen=True):
    """One server. Times `_us` of this host: monotonic, but for `since_us`, which is wall time. None: not known."""

    name: str
    places: tuple[str, ...]
    """`host:port` by which it is reached: as the configuration names it, and the address that was connected to."""
    error: str = ""
    """Why it does not answer; empty: it does."""
    since_us: int | None = None
    """Since when it does not."""
    asked_us: int = 0
    """When the newest answer was asked for."""
    at_us: int = 0
    """When that answer came; 0: it has never answered."""
    role_from_us: int = 0
    """When it first answered in this role on the connection it still answers on. A server changes from primary to
    standby by a restart alone, so it has been in it from then until `asked_us`. Begins again with another server."""
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    system_identifier: str | None = None
    version: str | None = None
    lsn: int | None = None
    """Of a primary what it has written, of a standby what it has received."""
    replayed_lsn: int | None = None
    replay_paused: bool | None = None
    replayed_ago_s: float | None = None
    """Since the commit that was replayed last, by the server's clock: an idle primary makes it grow."""
    receiver: str | None = None
    """Status of a standby's WAL receiver; None: none runs, or this role may not see it."""
    receiver_slot: str | None = None
    receiver_application: str | None = None
    senders: tuple[Sender, ...] = ()
    slots: tuple[NodeSlotNow, ...] = ()
    started_us: int | None = None
    """When the server was started, by its own clock: two nodes that have the same are one server."""

    @property
    def answers(self) -> bool:
        return not self.error and self.at_us > 0


class PoolerDatabase(Struct, array_like=True, frozen=True, gc=False):
    """A database of a pooler, its pools added up."""

    name: str
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
    """One PgBouncer; `error`, `since_us` and `at_us` as of a node."""

    name: str
    error: str = ""
    since_us: int | None = None
    at_us: int = 0
    databases: tuple[PoolerDatabase, ...] = ()
    missing: tuple[str, ...] = ()
    """Configured as leading to the cluster, and unknown to it."""


class ClusterNow(Struct, array_like=True, frozen=True):
    """The cluster (part `cluster`), in the order of the configuration."""

    now_us: int
    """Host wall time of the reading."""
    name: str
    nodes: tuple[NodeNow, ...]
    poolers: tuple[PoolerNow, ...]


class NodeDetails(Struct, array_like=True, frozen=True):
    """What changes slowly, or costs more to ask."""

    name: str
    at_us: int
    """Monotonic."""
    settings: dict[str, str]
    archive_ready: int | None
    """WAL files that wait to be archived; None: not read, or nothing is archived."""
    archive_failing: bool | None
    history: str | None
    """A primary's timeline history: where each timeline before ended. None where the role may not read it."""


class ClusterDetails(Struct, array_like=True, frozen=True):
    """What each node answered last (part `cluster.details`)."""

    nodes: tuple[NodeDetails, ...]
