"""Registry of the incidents by name, for one server and for a cluster.

The module of an incident is imported only when the incident is used: the tables here suffice to list them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dba_console.core.errors import UsageError, suggest

if TYPE_CHECKING:
    from dba_console.demo.incidents.cluster_incident import ClusterIncident
    from dba_console.demo.incidents.incident import Incident


class IncidentEntry(NamedTuple):
    module: str
    class_name: str
    """The class in that module."""
    summary: str


INCIDENTS = {
    "connection-storm": IncidentEntry("connection_storm", "ConnectionStorm", "one application takes every connection"),
    "lock-queue": IncidentEntry("lock_queue", "LockQueue", "an ALTER TABLE waits for a dump, and others for it"),
    "idle-in-transaction": IncidentEntry(
        "idle_in_transaction", "IdleInTransaction", "a forgotten transaction on hot rows"
    ),
    "wraparound": IncidentEntry("wraparound", "Wraparound", "only a few million transaction ids are left"),
    "checksum-failure": IncidentEntry("checksum_failure", "ChecksumFailure", "a page damaged on disk is read"),
    "archive-failing": IncidentEntry("archive_failing", "ArchiveFailing", "WAL cannot be archived any more"),
    "slot-retention": IncidentEntry("slot_retention", "SlotRetention", "an inactive slot retains all WAL"),
    "temp-spill": IncidentEntry("temp_spill", "TempSpill", "a runaway sort writes temporary files"),
    "disk-filling": IncidentEntry("disk_filling", "DiskFilling", "the data directory's disk fills up (root)"),
    "reclaim-stall": IncidentEntry(
        "reclaim_stall", "ReclaimStall", "I/O freezes, memory is reclaimed (recorded without root)"
    ),
}


CLUSTER_INCIDENTS = {
    "standby-lags": IncidentEntry("standby_incidents", "StandbyLags", "a report on the standby blocks its replay"),
    "replay-paused": IncidentEntry("standby_incidents", "ReplayPaused", "replay on the standby was not resumed"),
    "weaker-standby": IncidentEntry(
        "standby_incidents", "WeakerStandby", "the standby allows fewer clients than the primary"
    ),
    "missing-slot": IncidentEntry("standby_incidents", "MissingSlot", "the slot of the standby was dropped"),
    "archive-stuck": IncidentEntry(
        "primary_incidents", "ArchiveStuck", "WAL of the primary cannot be archived any more"
    ),
    "long-transaction": IncidentEntry(
        "primary_incidents", "LongTransaction", "a transaction on the primary does not end"
    ),
    "prepared-transaction": IncidentEntry(
        "primary_incidents", "PreparedTransaction", "a prepared transaction is left behind"
    ),
    "session-pool": IncidentEntry("primary_incidents", "SessionPool", "the pooler pools by session (needs PgBouncer)"),
    "primary-killed": IncidentEntry(
        "primary_incidents", "PrimaryKilled", "the primary is killed: a failover to rehearse"
    ),
}
"""Incidents of `demo --cluster`; each must block a cutover."""


def find_incident(name: str) -> Incident:
    """Return a new incident of one server. Raises UsageError with the nearest name, or all of them."""
    kind: type[Incident] = _incident_class(name, INCIDENTS)
    return kind()


def find_cluster_incident(name: str) -> ClusterIncident:
    """Return a new incident of the practice cluster. Raises UsageError, also for an incident of a single server."""
    if name in INCIDENTS:
        raise UsageError(f"the incident {name!r} is for a single server", hint="leave out --cluster")
    kind: type[ClusterIncident] = _incident_class(name, CLUSTER_INCIDENTS)
    return kind()


def _incident_class(name: str, known: Mapping[str, IncidentEntry]) -> Any:
    entry = known.get(name)
    if entry is None:
        names = [*INCIDENTS, *CLUSTER_INCIDENTS]
        hint = f"{suggest(name, names)} known incidents: {', '.join(names)}".strip()
        raise UsageError(f"no incident {name!r}", hint=hint)
    return getattr(importlib.import_module(f"dba_console.demo.incidents.{entry.module}"), entry.class_name)


def incident_list() -> str:
    """Return one line per incident."""
    lines = [f"  {name:<20} {entry.summary}" for name, entry in INCIDENTS.items()]
    lines += [f"  {name:<20} cluster: {entry.summary}" for name, entry in CLUSTER_INCIDENTS.items()]
    return "\n".join(lines)
