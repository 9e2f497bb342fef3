"""All rules about WAL, archiving and replication, and which of them explains which."""

from __future__ import annotations

from dba_console.watch.findings.rule import CausalLink, Family, same_evidence
from dba_console.watch.replication.archiving_rules import ARCHIVING_RULES, TMPFS_RULES, ArchivingLimits
from dba_console.watch.replication.recovery_rules import (
    CONFLICT_RULES,
    RECOVERY_RULES,
    SUBSCRIPTION_RULES,
    RecoveryLimits,
)
from dba_console.watch.replication.slot_rules import SLOT_RULES, SlotLimits
from dba_console.watch.replication.standby_rules import GONE_RULES, LAG_RULES, StandbyLimits
from dba_console.watch.replication.wal_space import WalSpaceLimits

FAMILY = Family(
    "WAL, archiving, replication",
    "wal",
    (
        *ARCHIVING_RULES,
        *SLOT_RULES,
        *LAG_RULES,
        *GONE_RULES,
        *RECOVERY_RULES,
        *CONFLICT_RULES,
        *SUBSCRIPTION_RULES,
        *TMPFS_RULES,
    ),
    thresholds=(ArchivingLimits, WalSpaceLimits, SlotLimits, StandbyLimits, RecoveryLimits),
    links=(
        CausalLink("slot-retention", "standby-gone", applies=same_evidence("last_pid", "pid")),
        CausalLink("replication-lag", "replay-paused"),
        CausalLink("replication-lag", "wal-receiver-down"),
        CausalLink("wal-receiver-down", "replay-paused", ", and none starts while "),
    ),
)
