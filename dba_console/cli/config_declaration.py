"""The declaration of the configuration with the thresholds of all rules, which `core/config.py` cannot know.

Prints the table of docs/configuration.md: `python -m dba_console.cli.config_declaration`; --schema: JSON Schema of the
file.
"""

from __future__ import annotations

import json
import sys
from functools import cache

import msgspec

from dba_console.core.config import Config
from dba_console.core.declarations import json_schema, table_lines
from dba_console.watch.findings.configuration import findings_table


@cache
def declared_config() -> type[msgspec.Struct]:
    """Return the declaration of the whole file."""
    table = findings_table()
    findings = ("findings", table, msgspec.field(default_factory=table))
    return msgspec.defstruct(
        "DeclaredConfig",
        [findings],
        bases=(Config,),
        module=__name__,
        forbid_unknown_fields=True,
        kw_only=True,
        frozen=True,
    )


def settings_table() -> str:
    """Return the table of all keys; docs/findings.md has the thresholds of the rules."""
    rows = [
        row for row in table_lines(declared_config()) if not row.startswith("| `findings.") or "`findings.off`" in row
    ]
    thresholds = "thresholds of the rules, one table per family"
    return "\n".join([*rows, f"| `findings.FAMILY.NAME` | number | [findings.md](findings.md) | {thresholds} |"])


if __name__ == "__main__":
    schema = json.dumps(json_schema(declared_config(), "dba-console configuration"), indent=2, ensure_ascii=False)
    print(schema if "--schema" in sys.argv[1:] else settings_table())
