"""Rules about standbys: how far behind, and whether they are still there."""

from __future__ import annotations

from dba_console.findings import lag, standbys
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (*lag.RULES, *standbys.RULES)
