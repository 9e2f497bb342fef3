"""Rules about what a cluster can lose for good, and about its catalogs and tables where they go wrong unnoticed."""

from __future__ import annotations

from dba_console.findings import autovacuum, catalog_faults, checksums, wraparound, wraparound_vacuum, xid_horizon
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    *checksums.RULES, *wraparound.RULES, *xid_horizon.RULES, *wraparound_vacuum.RULES, *autovacuum.RULES,
    *catalog_faults.RULES,
)  # fmt: skip
