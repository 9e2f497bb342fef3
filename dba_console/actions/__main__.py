"""Print docs/actions.md: `python -m dba_console.actions > docs/actions.md`."""

from __future__ import annotations

from dba_console.actions.reference_page import markdown

print(markdown(), end="")
