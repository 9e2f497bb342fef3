"""Rows of the panels' tables, with the field names of the contract (`show --json`); units as in `model`."""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.samples.jobs import JobFacts, ObjectFacts, PhaseFacts


class NodeSlot(Struct, kw_only=True):
    name: str
    kind: str
    active: bool
    wal_status: str | None = None
    retained_bytes: int | None = None


class NodeRow(Struct, kw_only=True):
    """A server of the cluster. If `error` is set it does not answer, and the rest is from its last answer."""

    name: str
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    system_identifier: str | None = None
    version: str | None = None
    lsn: str | None = None
    """Written by a primary, received by a standby."""
    lag_bytes: int | None = None
    """Written by the primary and not replayed here; null unless exactly one primary answers."""
    lag_s: float | None = None
    age_s: float | None = None
    """Age of all of these numbers except archive_ready."""
    replay_paused: bool | None = None
    apply_delay_s: float | None = None
    """recovery_min_apply_delay; null if 0 or unknown."""
    receiver: str | None = None
    sync_state: str | None = None
    """As the primary reports it; null also if its WAL senders cannot be distinguished."""
    slots: list[NodeSlot] = []
    archive_ready: int | None = None
    archive_failing: bool | None = None
    archive_age_s: float | None = None
    """Age of archive_ready and archive_failing."""
    error: str | None = None
    since: str | None = None
    """RFC 3339: since when it does not answer."""


class PoolerRow(Struct, kw_only=True):
    """A database of a pooler; one row without a database if the pooler has never answered."""

    name: str
    database: str | None = None
    mode: str | None = None
    clients_active: int | None = None
    clients_waiting: int | None = None
    longest_wait_s: float | None = None
    servers: int | None = None
    paused: bool | None = None
    paused_since: str | None = None
    """RFC 3339: when it was first observed paused."""
    leads_to: str | None = None
    """host:port."""
    node: str | None = None
    """The node at that address; null if no node is reached under that address from here."""
    age_s: float | None = None
    error: str | None = None
    since: str | None = None


class ConnectionGroup(Struct, kw_only=True):
    """Connections with one attribute in common."""

    name: str
    count: int
    active: int | None = 0
    """None if the state of a session is hidden or not tracked; idle_in_transaction too."""
    idle_in_transaction: int | None = 0
    limit: int | None = None
    """CONNECTION LIMIT of the role or database; None if it has none."""
    oldest_idle_s: float | None = None


class EventRow(Struct, kw_only=True):
    at: str
    kind: str
    tag: str
    text: str
    seq: int = 0
    severity: str = "info"
    finding: str | None = None
    """The id of the finding it belongs to."""


# Long operations, and of dumps and restores their phases and objects.


class PhaseRow(PhaseFacts, kw_only=True):
    started: str | None = None
    rate_per_s: float | None = None
    """Units per second of wall_s."""


class ObjectRow(ObjectFacts, kw_only=True):
    started: str | None = None


class JobCounts(Struct, kw_only=True):
    """Objects of a dump or restore by state."""

    running: int = 0
    done: int = 0
    waiting: int = 0
    failed: int = 0


class ProgressRow(JobFacts, kw_only=True):
    """A long operation; pct and eta_s refer to `scope`."""

    pid: int | None
    object: str | None = None
    started: str | None = None
    part_of: int | None = None
    """The `pid` of the row of the dump or restore this session belongs to."""
    blocks: int = 0
    """Sessions blocked by its locks."""
    wait: str | None = None
    """Wait event, if no other progress is known."""
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""
    # The fields below are only for dumps and restores, and mostly only if their program runs on this host.
    scope: str = "phase"
    """phase, file or whole: what pct and eta_s refer to; `file`: the file it reads, after which indexes and keys may
    follow. With `whole`, done and total refer to the whole too."""
    late_s: float | None = None
    """Time beyond its typical duration; None if unknown or not late."""
    usual_runs: int | None = None
    """Number of runs that usual_s is the median of."""
    process: int | None = None
    """The program's process on this host; pid is a backend of the server."""
    backends: list[int] = []
    """Its sessions; the newest ones may be missing."""
    counts: JobCounts | None = None
    """None if its objects are unknown."""
    phases: list[PhaseRow] = []
    objects: list[ObjectRow] = []
    """The relevant ones, ordered: running, failed, largest waiting, last done; all are in counts."""
    critical: list[str] = []
    """The critical path: largest table, its indexes, its keys."""
    xid_age: int | None = None
    """Age of the xmin horizon its sessions hold back, in transactions."""
    sources: list[str] = []
    """Data sources used."""
    unknown: list[str] = []
    """What is unknown and why, in sentences."""
