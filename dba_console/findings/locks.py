"""Findings about locks: a queue behind a lock of DDL, a session that holds others up, a dump that does."""

from __future__ import annotations

from dba_console.findings.lock_blockers import DUMP_BLOCKS, LOCK_BLOCKER
from dba_console.findings.lock_queue import LOCK_QUEUE
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (LOCK_QUEUE, DUMP_BLOCKS, LOCK_BLOCKER)
