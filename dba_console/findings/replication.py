"""Rules about standbys: how far behind, whether they are still there, whether this one receives and replays."""

from __future__ import annotations

from dba_console.findings import lag, standby_recovery, standbys
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (*lag.RULES, *standbys.RULES, *standby_recovery.RULES)
