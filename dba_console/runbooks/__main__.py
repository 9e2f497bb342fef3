"""Print docs/runbook-format.md: `python -m dba_console.runbooks > docs/runbook-format.md`; --schema: JSON Schema."""

from __future__ import annotations

import json
import sys

from dba_console.runbooks.format_page import format_schema, markdown

if "--schema" in sys.argv[1:]:
    print(json.dumps(format_schema(), indent=2, ensure_ascii=False))
else:
    print(markdown(), end="")
