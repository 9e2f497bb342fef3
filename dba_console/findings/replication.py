"""Rules about standbys: how far behind, whether they are still there, whether this one receives and
replays, whether subscriptions go on."""

from __future__ import annotations

from dba_console.findings import replication_lag, standby_conflicts, standby_recovery, standbys, subscriptions
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    *replication_lag.RULES, *standbys.RULES, *standby_recovery.RULES, *standby_conflicts.RULES, *subscriptions.RULES,
)  # fmt: skip
