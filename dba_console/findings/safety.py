"""Rules about what a cluster can lose for good: its pages, and its transaction ids."""

from __future__ import annotations

from dba_console.findings import checksums, horizon, wraparound, wraparound_vacuum
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (*checksums.RULES, *wraparound.RULES, *horizon.RULES, *wraparound_vacuum.RULES)
