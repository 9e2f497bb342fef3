"""The incidents by name. Their modules are loaded when one is asked for, so the table holds what a list needs."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, NamedTuple

from dba_console.errors import UsageError

if TYPE_CHECKING:
    from dba_console.demo.incidents.incident import Incident


class Entry(NamedTuple):
    module: str
    kind: str
    """The class in that module."""
    summary: str


INCIDENTS = {
    "connection-storm": Entry("connection_storm", "ConnectionStorm", "one application takes every connection"),
    "lock-queue": Entry("lock_queue", "LockQueue", "an ALTER TABLE behind a dump, and everybody behind it"),
    "idle-in-transaction": Entry("idle_in_transaction", "IdleInTransaction", "a forgotten transaction on hot rows"),
    "wraparound": Entry("wraparound", "Wraparound", "transaction ids run out in a few million"),
    "checksum-failure": Entry("checksum_failure", "ChecksumFailure", "a page damaged on disk is read"),
    "archive-failing": Entry("archive_failing", "ArchiveFailing", "WAL cannot be archived any more"),
    "slot-retention": Entry("slot_retention", "SlotRetention", "a slot nobody reads keeps all WAL"),
    "temp-spill": Entry("temp_spill", "TempSpill", "a runaway sort writes temporary files"),
    "disk-filling": Entry("disk_filling", "DiskFilling", "the data directory's disk fills up (root)"),
    "reclaim-stall": Entry("reclaim_stall", "ReclaimStall", "I/O freezes, memory is reclaimed (recorded without root)"),
}


def find(name: str) -> Incident:
    """A new incident of that name. Raises UsageError with the nearest name, or all of them."""
    entry = INCIDENTS.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, INCIDENTS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"no incident {name!r}", hint=f"{hint}There are: {', '.join(INCIDENTS)}")
    module = importlib.import_module(f"dba_console.demo.incidents.{entry.module}")
    kind: type[Incident] = getattr(module, entry.kind)
    return kind()


def overview() -> str:
    """A line for each incident."""
    return "\n".join(f"  {name:<20} {entry.summary}" for name, entry in INCIDENTS.items())
