"""Every rule, in the order in which they are asked."""

from __future__ import annotations

from dba_console.findings import cluster, connections, console, disks, io, jobs, locks, memory, safety, server, wal
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    *memory.RULES, *io.RULES, *locks.RULES, *connections.RULES, *safety.RULES, *wal.RULES, *disks.RULES, *jobs.RULES,
    *server.RULES, *cluster.RULES, *console.RULES,
)  # fmt: skip
