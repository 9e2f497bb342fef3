"""Every part a sample can have: its name, the struct of its reading, how often it is read.

One declaration, used by the collector, the codec, the recording and `doctor`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dba_console.samples import agent_health, catalog, cluster, findings, host, jobs, pending_reverts, postgres


@dataclass(frozen=True, slots=True)
class PartKind:
    """A part: `reading` is the struct it decodes to, `every_s` its cadence in seconds."""

    name: str
    reading: type[Any]
    every_s: int
    meaning: str


_PART_KINDS = (
    PartKind("host.cpu", host.Cpu, 1, "CPU times, iowait, blocked processes"),
    PartKind("host.memory", host.MemInfo, 1, "free, cached, dirty, swap, huge pages"),
    PartKind("host.vmstat", host.VmStat, 1, "reclaim, stalls, compaction, refaults"),
    PartKind("host.pressure", host.Pressure, 1, "pressure stall information"),
    PartKind("host.disks", host.Disks, 1, "block devices"),
    PartKind("host.mounts", host.Mounts, 5, "file systems and what they hold"),
    PartKind("host.settings", host.HostSettings, 10, "kernel settings, NUMA nodes"),
    PartKind("host.processes", host.Processes, 1, "CPU and I/O of the postmaster's processes"),
    PartKind("host.titles", host.ProcessTitles, 1, "connections by process title, in blind mode"),
    PartKind("host.control", host.ControlFile, 10, "pg_control and postmaster.pid"),
    PartKind("pg.server", postgres.Server, 30, "identity, settings, roles, databases"),
    PartKind("pg.activity", postgres.Sessions, 1, "pg_stat_activity"),
    PartKind("pg.locks", postgres.Locks, 1, "who waits for whom"),
    PartKind("pg.progress", postgres.Operations, 1, "pg_stat_progress_*"),
    PartKind("pg.databases", postgres.DatabaseStats, 3, "pg_stat_database"),
    PartKind("pg.replication", postgres.Replication, 2, "positions, standbys, slots"),
    PartKind("pg.archiver", postgres.Archiver, 3, "archiving and its backlog"),
    PartKind("pg.wal", postgres.Wal, 5, "WAL and checkpoints"),
    PartKind("pg.io", postgres.IoStats, 10, "pg_stat_io"),
    PartKind("pg.horizon", postgres.Horizon, 10, "what holds the xid horizon"),
    PartKind("pg.xids", postgres.Xids, 30, "distance to wraparound"),
    PartKind("pg.sizes", postgres.Sizes, 300, "database sizes"),
    PartKind("self", agent_health.AgentHealth, 1, "the console's own cost"),
    PartKind("findings", findings.FindingsNow, 10, "what is wrong, as the rules see it"),
    PartKind("jobs", jobs.Jobs, 30, "long jobs: which run, and what is known of the ones before"),
    PartKind("pg.temp", postgres.TempFiles, 5, "temporary files on disk"),
    PartKind(
        "debts",
        pending_reverts.PendingRevertsNow,
        30,
        "settings that runs have changed for a time, until they are put back",
    ),
    PartKind("jobs.now", jobs.JobsNow, 2, "dumps, restores and other long programs under way, in detail"),
    PartKind("pg.catalog", catalog.CatalogFaults, 300, "collations, invalid indexes and sequences, from the catalogs"),
    PartKind("pg.subscriptions", catalog.Subscriptions, 30, "pg_subscription and its workers"),
    PartKind("pg.dead_rows", catalog.DeadRowTables, 60, "tables with more dead rows than autovacuum leaves"),
    PartKind("cluster", cluster.ClusterNow, 2, "nodes and poolers of the configured cluster"),
    PartKind("cluster.details", cluster.ClusterDetails, 20, "settings and archive backlog of the cluster's nodes"),
)

PARTS: dict[str, PartKind] = {kind.name: kind for kind in _PART_KINDS}
