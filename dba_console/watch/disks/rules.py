"""All rules about disks, and which of them explains which."""

from __future__ import annotations

from dba_console.watch.disks.file_system_rules import FILE_SYSTEM_RULES, DiskLimits
from dba_console.watch.disks.temporary_file_rules import SPILL_RULE, TemporaryFileLimits
from dba_console.watch.findings.rule import CausalLink, Family, Signal, same_evidence


def _on_wal(effect: Signal, cause: Signal) -> bool:
    """Whether WAL is on the file system that fills up."""
    holds = effect.evidence.get("holds")
    return isinstance(holds, list) and "wal" in holds


FAMILY = Family(
    "Disks",
    "disks",
    (SPILL_RULE, *FILE_SYSTEM_RULES),
    thresholds=(DiskLimits, TemporaryFileLimits),
    links=(
        CausalLink("disk-filling", "slot-retention", applies=_on_wal),
        CausalLink("disk-filling", "archive-failing", applies=_on_wal),
        CausalLink("disk-filling", "archive-backlog", applies=_on_wal),
        CausalLink("disk-filling", "temp-spill", applies=same_evidence("mount", "mount")),
    ),
)
