"""Prints docs/findings.md: `python -m dba_console.findings > docs/findings.md`."""

from __future__ import annotations

from dba_console.findings.rules_document import render_markdown

print(render_markdown(), end="")
