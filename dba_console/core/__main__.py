"""Prints the table of docs/configuration.md: `python -m dba_console.core`; --schema: JSON Schema of the file."""

from __future__ import annotations

import json
import sys

from dba_console.core.config import Config
from dba_console.core.declarations import json_schema, table_lines


def settings_table() -> str:
    """Return the table of all keys; docs/findings.md has the thresholds of the rules."""
    rows = [row for row in table_lines(Config) if not row.startswith("| `findings.") or "`findings.off`" in row]
    thresholds = "thresholds of the rules, one table per family"
    return "\n".join([*rows, f"| `findings.FAMILY.NAME` | number | [findings.md](findings.md) | {thresholds} |"])


if __name__ == "__main__":
    schema = json.dumps(json_schema(Config, "dba-console configuration"), indent=2, ensure_ascii=False)
    print(schema if "--schema" in sys.argv[1:] else settings_table())
