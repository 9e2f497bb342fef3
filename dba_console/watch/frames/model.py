"""The frame: one struct per panel, with the field names of the contract (`show --json`).

Bytes, seconds and plain numbers. Rates end in `_per_s`, shares in `_pct` (0-100), ages in `_age_s`. None is unknown,
which is never written as 0.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

from msgspec import Struct, field

from dba_console.watch.frames.rows import (
    ChecksumRow,
    ConnectionGroup,
    DatabaseRow,
    Device,
    EventRow,
    HorizonRow,
    LockNode,
    MountRow,
    NodeRow,
    NumaRow,
    PoolerRow,
    ProgressRow,
    SessionRow,
    SlotRow,
    StandbyRow,
    XidRow,
    XidTable,
)

PANEL_NAMES = (
    "connections", "io", "memory", "safety", "progress", "locks", "replication", "disks", "sessions", "events",
    "cluster",
)  # fmt: skip
"""All panels, in the order of their keys 1 to 9, 0 and o."""


class Charted(NamedTuple):
    """Declares a field of a panel as charted: the agent keeps its last ten minutes and records them."""

    title: str
    part: str
    """The part it is read with: a tick that did not read it has no point."""


class PanelFrame(Struct, kw_only=True):
    """Fields of every panel: status of its reading, and its age."""

    status: str = "ok"
    """ok, stale, denied, unsupported, timeout or error."""
    note: str | None = None
    age_s: float | None = None


class Connections(PanelFrame, kw_only=True):
    max: int | None = None
    reserved_superuser: int | None = None
    reserved_role: int | None = None
    usable: int | None = None
    """max minus both reserves: available to ordinary roles."""
    used: Annotated[int | None, Charted("connections", "pg.activity")] = None
    """Client backends (walsenders have their own limit since 12 and do not count)."""
    used_pct: float | None = None
    active: Annotated[int | None, Charted("active sessions", "pg.activity")] = None
    idle: Annotated[int | None, Charted("idle sessions", "pg.activity")] = None
    idle_in_transaction: int | None = None
    waiting: Annotated[int | None, Charted("waiting for locks", "pg.activity")] = None
    """Active sessions waiting for a heavyweight lock."""
    other_states: int | None = None
    growth_per_min: float | None = None
    """Steady growth over the last three minutes; 0 without growth, None with less than 25 s of readings."""
    full_in_s: float | None = None
    """Time until `usable` is used up at that growth; None if steady growth does not reach it within a day."""
    by_application: list[ConnectionGroup] = []
    by_user: list[ConnectionGroup] = []
    by_database: list[ConnectionGroup] = []
    source: str | None = None
    """sql or process_titles."""
    seat: str | None = None
    """The slot of the console's own connection: regular, reserved_role, superuser; None in blind mode."""


class Io(PanelFrame, kw_only=True):
    iowait_pct: float | None = None
    user_pct: float | None = None
    system_pct: float | None = None
    steal_pct: float | None = None
    procs_running: int | None = None
    procs_blocked: Annotated[int | None, Charted("blocked processes", "host.cpu")] = None
    psi_some_avg10: Annotated[float | None, Charted("I/O some stall", "host.pressure")] = None
    psi_full_avg10: Annotated[float | None, Charted("I/O full stall", "host.pressure")] = None
    psi_full_pct: Annotated[float | None, Charted("I/O full stall", "host.pressure")] = None
    """Share of the last interval in which all tasks were stalled, from the total counter."""
    cpu_psi_some_avg10: Annotated[float | None, Charted("CPU some stall", "host.pressure")] = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    devices: list[Device] = []
    server: list[dict[str, Any]] = []
    """pg_stat_io (16+): rows with backend_type, object, context and rates."""


class Memory(PanelFrame, kw_only=True):
    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    buffers_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    slab_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_per_s: float | None = None
    """Pages swapped in per second; 0 only if measured."""
    swap_out_per_s: float | None = None
    cached_change_bytes_per_s: float | None = None
    free_change_bytes_per_s: float | None = None
    reclaim_kswapd_bytes_per_s: float | None = None
    reclaim_direct_bytes_per_s: float | None = None
    reclaim_file_bytes_per_s: float | None = None
    alloc_stalls_per_s: float | None = None
    compact_stalls_per_s: float | None = None
    drop_pagecache_count: int | None = None
    """Number of page cache drops since boot."""
    refault_bytes_per_s: Annotated[float | None, Charted("read again", "host.vmstat")] = None
    major_faults_per_s: float | None = None
    psi_some_avg10: Annotated[float | None, Charted("memory some stall", "host.pressure")] = None
    psi_full_avg10: Annotated[float | None, Charted("memory full stall", "host.pressure")] = None
    zone_reclaim_mode: int | None = None
    thp: str | None = None
    thp_defrag: str | None = None
    huge_pages_total: int | None = None
    huge_pages_used: int | None = None
    huge_page_bytes: int | None = None
    shared_buffers_bytes: int | None = None
    numa_nodes: list[NumaRow] = []
    settings: dict[str, int | str | None] = {}


class Safety(PanelFrame, kw_only=True):
    data_checksums: str | None = None
    """on, off, or the in-progress states of 19."""
    checksum_failures: int | None = None
    checksum_last_failure: str | None = None
    checksum_databases: list[ChecksumRow] = []
    xid_age: int | None = None
    xid_database: str | None = None
    xid_warn_age: int | None = None
    xid_stop_age: int | None = None
    xid_pct: float | None = None
    """xid_age as a share of xid_stop_age."""
    xids_per_s: float | None = None
    autovacuum_freeze_in_s: float | None = None
    """Seconds until autovacuum is forced; 0 if it already is; None if the rate is unknown or zero."""
    warn_in_s: float | None = None
    stop_in_s: float | None = None
    mxid_age: int | None = None
    mxid_pct: float | None = None
    mxids_per_s: float | None = None
    freeze_max_age: int | None = None
    failsafe_age: int | None = None
    databases: list[XidRow] = []
    tables: list[XidTable] = []
    horizon: list[HorizonRow] = []
    horizon_unknown: bool = False
    """Not read yet, or not readable: an empty list then does not mean that nothing holds it back."""


class Progress(PanelFrame, kw_only=True):
    operations: list[ProgressRow] = []


class Locks(PanelFrame, kw_only=True):
    waiting: Annotated[int | None, Charted("waiting for locks", "pg.activity")] = None
    longest_wait_s: float | None = None
    trees: list[LockNode] = []


class Replication(PanelFrame, kw_only=True):
    role: str | None = None
    """primary or standby."""
    timeline: int | None = None
    lsn: str | None = None
    lag_bytes: Annotated[int | None, Charted("replication lag", "pg.replication")] = None
    """Primary: of the standby furthest behind; standby: received but not replayed."""
    lag_s: Annotated[float | None, Charted("replication lag", "pg.replication")] = None
    """Standby: 0 if everything received from a live stream is replayed; without a stream the age of the last commit."""
    replay_paused: bool | None = None
    receiver_status: str | None = None
    receiver_host: str | None = None
    receiver_pid: int | None = None
    """Standby: the WAL receiver; its status and host are hidden from a role without pg_read_all_stats."""
    apply_delay_s: float | None = None
    """Standby: recovery_min_apply_delay, its intended delay; null if 0 or unknown."""
    standbys: list[StandbyRow] = []
    slots: list[SlotRow] = []
    wal_bytes_per_s: Annotated[float | None, Charted("WAL written", "pg.replication")] = None
    wal_files_bytes: int | None = None
    archive_enabled: bool | None = None
    archive_age_s: float | None = None
    """Since the last file was archived; on an idle server this grows while archive_ready_count stays 0."""
    archive_failed_count: int | None = None
    archive_ready_count: int | None = None
    archive_oldest_s: float | None = None
    """Since the oldest of them became ready."""
    last_archived_wal: str | None = None
    last_failed_wal: str | None = None
    last_failed_age_s: float | None = None
    checkpoints_timed: Annotated[int | None, Charted("timed checkpoints", "pg.wal")] = None
    checkpoints_requested: Annotated[int | None, Charted("requested checkpoints", "pg.wal")] = None
    checkpoints_requested_per_min: float | None = None
    """Mean of the last ten minutes; None if the counter was read for less than one."""
    checkpoint_write_ms: float | None = None


class ClusterPanel(PanelFrame, kw_only=True):
    name: str | None = None
    """As configured; null if the server belongs to no configured cluster."""
    primary: str | None = None
    """The only node that answers as primary; null if none or several do."""
    nodes: list[NodeRow] = []
    poolers: list[PoolerRow] = []
    differences: list[str] = []
    """Relevant differences between the nodes, in sentences."""


class Disks(PanelFrame, kw_only=True):
    mounts: list[MountRow] = []
    wal_available_bytes: int | None = None
    """Space available to an ordinary user on the file system of pg_wal."""
    databases: list[DatabaseRow] = []
    warnings: list[str] = []


class Sessions(PanelFrame, kw_only=True):
    rows: list[SessionRow] = []
    hidden: int = 0


class Events(PanelFrame, kw_only=True):
    rows: list[EventRow] = []


class Finding(Struct, kw_only=True):
    """A problem, in one sentence with its evidence."""

    id: str
    """The rule's name, or `rule:subject`; for a joined finding the root cause's id."""
    severity: str
    """info, warning or critical."""
    subject: str
    text: str
    evidence: dict[str, Any] = {}
    """The numbers that prove it, with the field names of these panels."""
    runbook: str | None = None
    since: str | None = None
    """RFC 3339: when it began if a reading shows it, else when it was first observed."""
    rule: str = ""
    at: str | None = None
    """RFC 3339: when the numbers of the sentence were read."""
    chain: list[str] = []
    """Ids of the joined findings, from the effect to the root cause."""
    series: list[str] = []
    """Chart values that show it."""
    advice: str | None = None
    state: str = "open"
    """open, acknowledged or silenced."""
    who: str | None = None
    note: str | None = None
    until: str | None = None
    """RFC 3339: silenced until then."""
    also: list[str] = []
    """Ids of further effects of the same causes."""


class TargetFrame(Struct, kw_only=True):
    name: str | None = None
    """cluster_name, else the host's name: then two servers of one host differ only by their port."""
    port: int | None = None
    system_identifier: str | None = None
    role: str = "unknown"
    timeline: int | None = None
    server_version: int | None = None
    version: str | None = None
    """As usually written: 15.18, 17beta1."""
    uptime_s: float | None = None
    host: str | None = None
    local: bool | None = None
    through: str | None = None
    state: str = "connected"
    """connected, blind, disconnected (with the reason in note)."""
    note: str | None = None
    clock_offset_s: float | None = None
    postmaster_stopped: bool | None = None
    """The postmaster was stopped by a signal: sessions continue, new ones hang. None if its process is not visible."""


class SelfFrame(Struct, kw_only=True):
    cpu_pct: float | None = None
    backend_cpu_pct: float | None = None
    rss_bytes: int | None = None
    queries: int | None = None
    query_ms: float | None = None
    """Time spent waiting for the server in the last interval, milliseconds."""
    recorder_lag_s: float | None = None
    dropped: int = 0
    stuck_lanes: int = 0
    lanes: list[str] = []
    consoles: int | None = None
    late_s: float | None = None
    recording: str | None = None
    recording_note: str | None = None
    readers_dropped: int = 0
    rules_cpu_pct: float | None = None
    """The part of cpu_pct used by the finding rules, in percent of one core."""


class Frame(Struct, kw_only=True):
    """Everything derived from two samples and the last ten minutes, at one time."""

    at_us: int = 0
    seq: int = 0
    mono_us: int = 0
    boot: str = ""
    target: TargetFrame = field(default_factory=TargetFrame)
    connections: Connections = field(default_factory=Connections)
    io: Io = field(default_factory=Io)
    memory: Memory = field(default_factory=Memory)
    safety: Safety = field(default_factory=Safety)
    progress: Progress = field(default_factory=Progress)
    locks: Locks = field(default_factory=Locks)
    replication: Replication = field(default_factory=Replication)
    disks: Disks = field(default_factory=Disks)
    sessions: Sessions = field(default_factory=Sessions)
    events: Events = field(default_factory=Events)
    cluster: ClusterPanel = field(default_factory=ClusterPanel)
    findings: list[Finding] = []
    judged: bool = False
    """The rules were evaluated at this time: no findings then means that they found nothing."""
    judged_s: float | None = None
    """How long the rules had been evaluated by then; None without evaluation, or if a recording does not contain it."""
    pending: dict[str, float] = {}
    """Ids of detected problems that are not raised yet, each with the seconds it must last."""
    findings_note: str | None = None
    """Why findings may be missing: rules that failed."""
    own: SelfFrame = field(default_factory=SelfFrame)


_UNITS = (
    ("bytes_per_s", "bytes/s"),
    ("per_s", "1/s"),
    ("per_min", "1/min"),
    ("bytes", "bytes"),
    ("pct", "%"),
    ("avg10", "%"),
    ("ms", "ms"),
    ("s", "s"),
    ("mxid_age", "multixacts"),
    ("xid_age", "transactions"),
)
"""Last words of a field's name, and the unit they stand for."""


def unit_of(field: str) -> str:
    """Return the unit of a field of a panel or of a row of its tables; empty for counts and texts.

    >>> [unit_of(name) for name in ("read_bytes_per_s", "psi_some_avg10", "bytes", "max", "age_s")]
    ['bytes/s', '%', 'bytes', '', 's']
    """
    return next((unit for end, unit in _UNITS if field == end or field.endswith(f"_{end}")), "")


@cache
def charts(panel: type[PanelFrame]) -> dict[str, Charted]:
    """Return the charted fields of a panel."""
    hints = get_type_hints(panel, include_extras=True)
    return {
        name: chart
        for name, hint in hints.items()
        for chart in getattr(hint, "__metadata__", ())
        if isinstance(chart, Charted)
    }


@cache
def chart_titles() -> dict[str, str]:
    """Return the titles of charted fields by `panel.field`, as the chart history names them."""
    panels = {name: kind for name, kind in get_type_hints(Frame).items() if name in PANEL_NAMES}
    return {f"{name}.{field}": chart.title for name, kind in panels.items() for field, chart in charts(kind).items()}
