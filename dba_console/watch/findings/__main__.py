"""Print docs/findings.md: `python -m dba_console.watch.findings > docs/findings.md`."""

from __future__ import annotations

from dba_console.watch.findings.rules_document import render_markdown

print(render_markdown(), end="")
