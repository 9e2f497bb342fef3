"""Numbers of a session as counters and gauges in base units: seconds, bytes, ratios from 0 to 1.

Counters are those of the kernel and of PostgreSQL, not rates made of them. Gauges that a panel charts come from the
chart values and keep their names; the others come from the readings. No label has a value per process, query or table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from msgspec import DecodeError

from dba_console.clusters.subject.readings import ClusterNow
from dba_console.recording.points import Point
from dba_console.reports.export_formats import Span, least_distance
from dba_console.watch.frames.model import chart_titles
from dba_console.watch.replication.readings import Replication
from dba_console.watch.safety.readings import Horizon
from dba_console.watch.samples.findings import FindingsNow
from dba_console.watch.samples.host import Disks, MemInfo, Mounts, Pressure, VmStat
from dba_console.watch.samples.jobs import JobsNow
from dba_console.watch.samples.postgres import Server
from dba_console.watch.samples.sample import Part, Sample
from dba_console.watch.subjects import PANEL_NAMES

Kind = Literal["counter", "gauge", "info"]
Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float | None]]


class Metric(NamedTuple):
    """A number of one part of the samples, or of the chart values if `part` is empty."""

    name: str
    """Ends with its unit, if it has one."""
    kind: Kind
    help: str
    part: str
    labels: Labels
    values: Callable[[Any], Values]
    """Returns label values and number of each series in a reading; None is unknown."""

    @property
    def unit(self) -> str:
        """Return seconds, bytes, ratio, or nothing for counts."""
        last = self.name.rpartition("_")[2]
        return last if last in ("seconds", "bytes", "ratio") else ""


class MetricPoint(NamedTuple):
    metric: Metric
    labels: Labels
    value: float


# Declarations. `_field` returns the value of one attribute, `_named` those of several, each under its label value.


def _field(attribute: str, factor: float = 1) -> Callable[[Any], Values]:
    return lambda reading: [((), _times(getattr(reading, attribute), factor))]


def _named(factor: float = 1, **attributes: str) -> Callable[[Any], Values]:
    pairs = [((label,), attribute) for label, attribute in attributes.items()]
    return lambda reading: [(labels, _times(getattr(reading, attribute), factor)) for labels, attribute in pairs]


def _times(value: float | None, factor: float) -> float | None:
    if value is None or factor == 1:
        return value
    return value * factor if factor > 1 else value / round(1 / factor)  # 0.01 and 0.001 are not exact


def _memory(reading: MemInfo) -> Values:
    sizes = [name for name in MemInfo.__struct_fields__ if not name.startswith("huge")]  # HugePages_* are counts
    return [((name,), getattr(reading, name)) for name in sizes]


def _vm(attribute: str, unit: int = 1) -> Callable[[VmStat], Values]:
    """Return a counter of /proc/vmstat; `unit` 0: in pages."""

    def values(reading: VmStat) -> Values:
        return [((), _times(getattr(reading, attribute), unit or reading.page_size))]

    return values


def _reclaimed(reading: VmStat) -> Values:
    by = {"kswapd": reading.pgsteal_kswapd, "direct": reading.pgsteal_direct}
    return [((name,), _times(pages, reading.page_size)) for name, pages in by.items()]


def _stalls(reading: Pressure) -> Values:
    stalls = {
        ("cpu", "some"): reading.cpu_some, ("io", "some"): reading.io_some, ("io", "full"): reading.io_full,
        ("memory", "some"): reading.memory_some, ("memory", "full"): reading.memory_full,
    }  # fmt: skip
    return [(labels, None if stall is None else stall.total_us / 1e6) for labels, stall in stalls.items()]


def _disk(factor: float = 1, **attributes: str) -> Callable[[Disks], Values]:
    """Return the values of every device, under the label `operation` if there are several."""
    several = len(attributes) > 1
    return lambda reading: [
        ((disk.name, operation) if several else (disk.name,), _times(getattr(disk, attribute), factor))
        for disk in reading.devices
        for operation, attribute in attributes.items()
    ]


def _mount(value: Callable[[Any], float | None]) -> Callable[[Mounts], Values]:
    return lambda reading: [((mount.path, mount.device or ""), value(mount)) for mount in reading.mounts]


def _databases(factor: float = 1, rows: str = "rows", **attributes: str) -> Callable[[Any], Values]:
    """Return the values of every database, under a second label if there are several. Shared objects have no name."""
    several = len(attributes) > 1
    return lambda reading: [
        ((row.name or "", kind) if several else (row.name or "",), _times(getattr(row, attribute), factor))
        for row in getattr(reading, rows)
        for kind, attribute in attributes.items()
    ]


def _io(factor: float = 1, **attributes: str) -> Callable[[Any], Values]:
    return lambda reading: [
        ((row.backend_type, row.object, row.context, kind), _times(getattr(row, attribute), factor))
        for row in reading.rows
        for kind, attribute in attributes.items()
    ]


def _settings(reading: Server) -> Values:
    values = {setting.name: setting.value for setting in reading.settings}
    return [((), float(values["max_connections"]) if values.get("max_connections", "").isdigit() else None)]


def _server(reading: Server) -> Values:
    role = "standby" if reading.in_recovery else "primary"
    return [((reading.version, reading.system_identifier or "", role, str(reading.timeline or "")), 1)]


def _node_lag(reading: ClusterNow) -> Values:
    primaries = [node for node in reading.nodes if node.answers and node.role == "primary"]
    if len(primaries) != 1 or (written := primaries[0].lsn) is None:
        return []
    return [
        ((node.name,), max(0, written - node.replayed_lsn))
        for node in reading.nodes
        if node.answers and node.role == "standby" and node.replayed_lsn is not None
    ]


def _standby_bytes(reading: Replication) -> Values:
    for standby in reading.standbys:
        known = reading.lsn is not None and standby.replay_lsn is not None
        yield (standby.application,), max(0, (reading.lsn or 0) - (standby.replay_lsn or 0)) if known else None


def _standby_seconds(reading: Replication) -> Values:
    return [((standby.application,), standby.replay_lag_s) for standby in reading.standbys]


def _horizon(reading: Horizon) -> Values:
    oldest: dict[str, int] = {}
    for row in reading.rows:
        oldest[row.kind] = max(oldest.get(row.kind, 0), row.xid_age or 0)
    return [((kind,), age) for kind, age in oldest.items()]


def _pooler(attribute: str) -> Callable[[ClusterNow], Values]:
    return lambda reading: [
        ((pooler.name, database.name), getattr(database, attribute))
        for pooler in reading.poolers
        for database in pooler.databases
    ]


def _jobs(reading: JobsNow) -> Values:
    return [((job.kind, job.database or ""), None if job.pct is None else job.pct / 100) for job in reading.jobs]


def _findings(reading: FindingsNow) -> Values:
    return [((row.id, row.severity), 1) for row in reading.rows]


C: Kind = "counter"
G: Kind = "gauge"
_SECTOR, _MS, _KB = 512, 0.001, 1024
_DEVICE, _OPERATION = ("device",), ("device", "operation")
_MOUNT, _DATABASE, _POOLER = ("mount", "device"), ("database",), ("pooler", "database")
_IO = ("backend_type", "object", "context", "operation")

METRICS: tuple[Metric, ...] = (
    Metric("host_cpu_seconds", C, "Time of all CPUs by mode, since boot.", "host.cpu", ("mode",),
           _named(0.01, user="user", nice="nice", system="system", idle="idle", iowait="iowait", irq="irq",
                  softirq="softirq", steal="steal")),
    Metric("host_cpus", G, "Number of CPUs.", "host.cpu", (), _field("cpus")),
    Metric("host_context_switches", C, "Context switches since boot.", "host.cpu", (), _field("context_switches")),
    Metric("host_processes_running", G, "Runnable tasks.", "host.cpu", (), _field("procs_running")),
    Metric("host_memory_bytes", G, "/proc/meminfo.", "host.memory", ("kind",),
           _memory),
    Metric("host_page_in_bytes", C, "Read from block devices.", "host.vmstat", (), _vm("pgpgin_kb", _KB)),
    Metric("host_page_out_bytes", C, "Written to block devices.", "host.vmstat", (), _vm("pgpgout_kb", _KB)),
    Metric("host_swap_in_bytes", C, "Read from swap.", "host.vmstat", (), _vm("pswpin", 0)),
    Metric("host_swap_out_bytes", C, "Written to swap.", "host.vmstat", (), _vm("pswpout", 0)),
    Metric("host_major_faults", C, "Page faults that read from disk.", "host.vmstat", (), _vm("pgmajfault")),
    Metric("host_reclaimed_bytes", C, "Memory reclaimed.", "host.vmstat", ("by",), _reclaimed),
    Metric("host_refault_file_bytes", C, "File pages read again soon after they were reclaimed.", "host.vmstat", (),
           _vm("refault_file", 0)),
    Metric("host_allocation_stalls", C, "Times a process had to reclaim memory itself.", "host.vmstat", (),
           _vm("allocstall")),
    Metric("host_compaction_stalls", C, "Times a process had to wait for compaction.", "host.vmstat", (),
           _vm("compact_stall")),
    Metric("host_page_cache_drops", C, "Writes of 1 or 3 to drop_caches.", "host.vmstat", (), _vm("drop_pagecache")),
    Metric("host_oom_kills", C, "Processes killed for lack of memory.", "host.vmstat", (), _vm("oom_kill")),
    Metric("host_pressure_stall_seconds", C, "Time in which tasks were stalled (PSI).", "host.pressure",
           ("resource", "tasks"), _stalls),
    Metric("device_operations", C, "Completed requests.", "host.disks", _OPERATION,
           _disk(read="reads", write="writes", discard="discards", flush="flushes")),
    Metric("device_transferred_bytes", C, "Bytes of completed requests.", "host.disks", _OPERATION,
           _disk(_SECTOR, read="read_sectors", write="written_sectors", discard="discarded_sectors")),
    Metric("device_operation_time_seconds", C, "Time of all completed requests.", "host.disks", _OPERATION,
           _disk(_MS, read="read_ms", write="write_ms", discard="discard_ms", flush="flush_ms")),
    Metric("device_busy_seconds", C, "Time with a request in flight; its rate is %util.", "host.disks", _DEVICE,
           _disk(_MS, busy="io_ms")),
    Metric("device_queue_seconds", C, "Time in flight, summed over requests; its rate is aqu-sz.", "host.disks",
           _DEVICE, _disk(_MS, queue="weighted_ms")),
    Metric("device_in_flight", G, "Requests in flight.", "host.disks", _DEVICE, _disk(in_flight="in_flight")),
    Metric("mount_size_bytes", G, "Size of the file system.", "host.mounts", _MOUNT, _mount(lambda one: one.size)),
    Metric("mount_used_bytes", G, "Used space.", "host.mounts", _MOUNT, _mount(lambda one: one.used)),
    Metric("mount_available_bytes", G, "Space available to an unprivileged user.", "host.mounts", _MOUNT,
           _mount(lambda one: one.available)),
    Metric("mount_inodes", G, "Inodes of the file system.", "host.mounts", _MOUNT, _mount(lambda one: one.inodes)),
    Metric("mount_inodes_free", G, "Free inodes.", "host.mounts", _MOUNT, _mount(lambda one: one.inodes_free)),
    Metric("pg_up", G, "1 if the agent is connected to the server.", "self", (),
           lambda reading: [((), 1 if reading.outage is None else 0)]),
    Metric("pg_server", "info", "Identity of the server.", "pg.server",
           ("version", "system_identifier", "role", "timeline"), _server),
    Metric("pg_start_time_seconds", G, "Start of the server, seconds since 1970.", "pg.server", (),
           _field("start_us", 1e-6)),
    Metric("pg_max_connections", G, "max_connections.", "pg.server", (), _settings),
    Metric("pg_database_backends", G, "Backends by database.", "pg.databases", _DATABASE,
           _databases(backends="numbackends")),
    Metric("pg_database_transactions", C, "Transactions by outcome.", "pg.databases", ("database", "outcome"),
           _databases(commit="xact_commit", rollback="xact_rollback")),
    Metric("pg_database_blocks", C, "Blocks found in shared buffers (hit) or not (read).", "pg.databases",
           ("database", "source"), _databases(hit="blks_hit", read="blks_read")),
    Metric("pg_database_block_time_seconds", C, "Time of block reads and writes; left out where it is not tracked.",
           "pg.databases", ("database", "operation"), _databases(_MS, read="blk_read_ms", write="blk_write_ms")),
    Metric("pg_database_tuples", C, "Rows returned by scans, fetched by indexes, written.", "pg.databases",
           ("database", "operation"),
           _databases(returned="tup_returned", fetched="tup_fetched", written="tup_written")),
    Metric("pg_database_conflicts", C, "Queries cancelled by recovery.", "pg.databases", _DATABASE,
           _databases(conflicts="conflicts")),
    Metric("pg_database_deadlocks", C, "Deadlocks.", "pg.databases", _DATABASE, _databases(deadlocks="deadlocks")),
    Metric("pg_database_temp_files", C, "Temporary files of queries.", "pg.databases", _DATABASE,
           _databases(files="temp_files")),
    Metric("pg_database_temp_bytes", C, "Bytes of temporary files of queries.", "pg.databases", _DATABASE,
           _databases(bytes="temp_bytes")),
    Metric("pg_database_checksum_failures", C, "Pages that failed their checksum.", "pg.databases", _DATABASE,
           _databases(failures="checksum_failures")),
    Metric("pg_database_size_bytes", G, "Size of the database.", "pg.sizes", _DATABASE, _databases(size="bytes")),
    Metric("pg_database_xid_age", G, "Age of datfrozenxid in transactions.", "pg.xids", _DATABASE,
           _databases(rows="databases", age="xid_age")),
    Metric("pg_database_mxid_age", G, "Age of datminmxid in multixacts.", "pg.xids", _DATABASE,
           _databases(rows="databases", age="mxid_age")),
    Metric("pg_next_xid", C, "Next transaction id, with epoch.", "pg.xids", (), _field("next_xid")),
    Metric("pg_next_mxid", C, "Next multixact id.", "pg.xids", (), _field("next_mxid")),
    Metric("pg_wal_position_bytes", C, "WAL position: written by a primary, replayed by a standby.", "pg.replication",
           (), _field("lsn")),
    Metric("pg_standby_lag_bytes", G, "WAL not replayed by a standby.", "pg.replication", ("application",),
           _standby_bytes),
    Metric("pg_standby_lag_seconds", G, "replay_lag of a standby.", "pg.replication", ("application",),
           _standby_seconds),
    Metric("pg_xid_horizon_age", G, "Oldest transaction id that is held, in transactions.", "pg.horizon", ("kind",),
           _horizon),
    Metric("pg_temp_open_bytes", G, "Temporary files in use.", "pg.temp", (),
           lambda reading: [((), sum(row.bytes for row in reading.rows))]),
    Metric("pg_wal_records", C, "WAL records.", "pg.wal", (), _field("records")),
    Metric("pg_wal_full_page_images", C, "Full page images in WAL.", "pg.wal", (), _field("fpi")),
    Metric("pg_wal_generated_bytes", C, "WAL generated.", "pg.wal", (), _field("bytes")),
    Metric("pg_wal_directory_bytes", G, "Bytes of the files in pg_wal.", "pg.wal", (), _field("wal_files_bytes")),
    Metric("pg_checkpoints", C, "Checkpoints by cause.", "pg.wal", ("cause",),
           _named(timed="checkpoints_timed", requested="checkpoints_requested")),
    Metric("pg_checkpoint_time_seconds", C, "Time of checkpoints by phase.", "pg.wal", ("phase",),
           _named(_MS, write="checkpoint_write_ms", sync="checkpoint_sync_ms")),
    Metric("pg_buffers_written", C, "Buffers written.", "pg.wal", ("by",),
           _named(checkpoint="buffers_checkpoint", backend="buffers_backend")),
    Metric("pg_archive_files", C, "WAL files archived, and failed attempts.", "pg.archiver", ("result",),
           _named(archived="archived_count", failed="failed_count")),
    Metric("pg_archive_ready_files", G, "WAL files that wait to be archived.", "pg.archiver", (),
           _field("ready_count")),
    Metric("pg_io_operations", C, "pg_stat_io: operations.", "pg.io", _IO,
           _io(read="reads", write="writes", extend="extends", hit="hits", evict="evictions", fsync="fsyncs")),
    Metric("pg_io_bytes", C, "pg_stat_io: bytes.", "pg.io", _IO, _io(read="read_bytes", write="write_bytes")),
    Metric("pg_io_time_seconds", C, "pg_stat_io: time; left out where it is not tracked.", "pg.io", _IO,
           _io(_MS, read="read_ms", write="write_ms", fsync="fsync_ms")),
    Metric("cluster_node_up", G, "1 if the node answers.", "cluster", ("node",),
           lambda reading: [((node.name,), 1 if node.answers else 0) for node in reading.nodes]),
    Metric("cluster_node_lag_bytes", G, "WAL of the only primary not replayed on the node.", "cluster", ("node",),
           _node_lag),
    Metric("pooler_clients_active", G, "Clients with a server connection.", "cluster", _POOLER,
           _pooler("clients_active")),
    Metric("pooler_clients_waiting", G, "Clients that wait for one.", "cluster", _POOLER, _pooler("clients_waiting")),
    Metric("pooler_servers", G, "Server connections.", "cluster", _POOLER, _pooler("servers")),
    Metric("pooler_longest_wait_seconds", G, "Longest wait of a client.", "cluster", _POOLER,
           _pooler("longest_wait_s")),
    Metric("job_done_ratio", G, "Progress of dumps and restores.", "jobs.now", ("program", "database"), _jobs),
    Metric("finding_open", G, "1 while the finding is open.", "findings", ("finding", "severity"), _findings),
    Metric("console_cpu_seconds", C, "CPU time of the console's agent.", "self", (), _field("cpu_us", 1e-6)),
    Metric("console_resident_memory_bytes", G, "Memory of the console's agent.", "self", (), _field("rss")),
    Metric("console_dropped_samples", C, "Samples that could not be recorded.", "self", (), _field("dropped")),
)  # fmt: skip

_BY_PART: dict[str, list[Metric]] = {}
for _metric in METRICS:
    _BY_PART.setdefault(_metric.part, []).append(_metric)


# Chart values.

_CHANGED = (
    ("_pct", "_ratio", 0.01),
    ("_avg10", "_avg10_ratio", 0.01),
    ("_s", "_seconds", 1.0),
)
_LEFT_OUT = ("_per_s", "replication.checkpoints_timed", "replication.checkpoints_requested")
"""Rates and counters, for which the counters above are exported."""
_REPLACED = ("memory.free", "memory.available", "memory.cached", "memory.dirty", "memory.swap_used")


def chart_metric(name: str) -> tuple[Metric, Labels, float] | None:
    """Return the gauge of a chart value with its label values and the factor of its unit; None if not exported.

    >>> metric, labels, factor = chart_metric("io.iowait_pct")
    >>> metric.name, labels, factor
    ('io_iowait_ratio', (), 0.01)
    """
    if name.startswith("slot:"):
        slot = name.removeprefix("slot:").removesuffix(".retained_bytes")
        return _gauge("replication_slot_retained_bytes", "WAL retained for the slot.", ("slot",)), (slot,), 1.0
    panel, _, field = name.partition(".")
    if panel not in PANEL_NAMES or name.endswith(_LEFT_OUT) or name.startswith(_REPLACED):
        return None
    title = chart_titles().get(name, field.replace("_", " "))
    for suffix, unit, factor in _CHANGED:
        if field.endswith(suffix):
            changed = f"{panel}_{field.removesuffix(suffix)}{unit}"
            return _gauge(changed, f"Panel {panel}: {title}."), (), factor
    return _gauge(f"{panel}_{field}", f"Panel {panel}: {title}."), (), 1.0


def _gauge(name: str, help: str, labels: Labels = ()) -> Metric:
    return Metric(name, G, help, "", labels, _no_values)


def _no_values(reading: Any) -> Values:
    return ()


# Reading.


class MetricReader:
    """Reads the points of a span, then of the one after it, each once; times increase in every series."""

    def __init__(self, every_us: int = 0) -> None:
        """`every_us`: minimum distance of the points of a series."""
        self._every_ms = least_distance(every_us) // 1000
        self._at: dict[tuple[str, str], int] = {}
        """Monotonic time of the newest reading of each part, by agent run."""
        self._last_ms: dict[str, int] = {}
        self._charts: dict[str, tuple[Metric, Labels, float] | None] = {}
        self._remote = False
        """The server is proven to run on another host: what was read from this one is not about it."""
        self._set_back = 0

    def read(self, span: Span) -> Iterator[tuple[int, list[MetricPoint]]]:
        """Yield wall time in milliseconds and points of each reading."""
        for block in span.recording.blocks(span.from_us, span.to_us):
            for sample in block.samples:
                for part in sorted(sample.parts, key=_is_not_server):
                    yield from self._read_part(sample, part)
            for wall_us, point in block.points:
                if self._is_due("", wall_us // 1000):
                    yield wall_us // 1000, list(self._chart_points(point))

    def notes(self) -> list[str]:
        """Return what was left out, in sentences."""
        if not self._set_back:
            return []
        return [f"{self._set_back} readings are left out: the clock of the host was set back before them"]

    def _read_part(self, sample: Sample, part: Part) -> Iterator[tuple[int, list[MetricPoint]]]:
        known = (sample.boot, part.name)
        if part.reading is None or part.name not in _BY_PART or self._at.get(known, -1) >= part.at_us:
            return
        self._at[known] = part.at_us
        at_ms = (sample.wall_us - sample.mono_us + part.at_us) // 1000
        if not self._is_due(part.name, at_ms):
            return
        try:
            reading = part.decode()
        except DecodeError:
            return
        if isinstance(reading, Server):
            self._remote = reading.local is False
        if not (self._remote and part.name.startswith("host.")):
            yield at_ms, list(_part_points(part.name, reading))

    def _is_due(self, part: str, at_ms: int) -> bool:
        last_ms = self._last_ms.get(part)
        if last_ms is not None and at_ms <= last_ms:
            self._set_back += 1
            return False
        if last_ms is not None and at_ms - last_ms < self._every_ms:
            return False
        self._last_ms[part] = at_ms
        return True

    def _chart_points(self, point: Point) -> Iterator[MetricPoint]:
        for name, value in point.items():
            if name not in self._charts:
                self._charts[name] = chart_metric(name)
            if (found := self._charts[name]) is not None:
                metric, labels, factor = found
                yield MetricPoint(metric, labels, _times(value, factor) or 0.0)


def _is_not_server(part: Part) -> bool:
    """Sort key: it must be known where the server runs before anything of this host is read."""
    return part.name != "pg.server"


def _part_points(name: str, reading: Any) -> Iterator[MetricPoint]:
    for metric in _BY_PART[name]:
        seen: set[Labels] = set()
        for labels, value in metric.values(reading):
            # Two dumps of one database have the same labels: the first one counts.
            if value is not None and math.isfinite(value) and labels not in seen:
                seen.add(labels)
                yield MetricPoint(metric, labels, value)
