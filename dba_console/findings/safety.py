"""Rules about what a cluster can lose for good, and about its catalogs and tables where they go wrong unnoticed."""

from __future__ import annotations

from dba_console.findings import autovacuum, catalog_faults, checksums, wraparound, wraparound_vacuum, xid_horizon
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    *checksums.CHECKSUM_RULES, *wraparound.RULES, *xid_horizon.HORIZON_RULES, *wraparound_vacuum.VACUUM_RULES, *autovacuum.RULES,
    *catalog_faults.CATALOG_RULES,
)  # fmt: skip
