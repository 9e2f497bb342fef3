"""Rules about connections."""

from __future__ import annotations

from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = ()
