"""Rules about standbys: how far behind, whether they are still there, whether this one receives and
replays, whether subscriptions go on."""

from __future__ import annotations

from dba_console.findings import replication_lag, standby_conflicts, standby_recovery, standbys, subscriptions
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    *replication_lag.LAG_RULES, *standbys.RULES, *standby_recovery.RECOVERY_RULES, *standby_conflicts.CONFLICT_RULES, *subscriptions.SUBSCRIPTION_RULES,
)  # fmt: skip
