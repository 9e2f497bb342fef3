"""`dba-console runbook list`: which there are, what they answer, where they lie."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import known_actions, runbook_directories
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode
from dba_console.runbook.library import ListedRunbook, answering, listed


def list_(
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="ID", help="Only those that answer this finding.")
    ] = None,
    json: Json = False,
) -> int:
    """Every runbook: its title, the findings it answers, where it is from. What hides another one is told."""
    rows = listed(runbook_directories(), known_actions())
    if finding is not None:
        rows = answering(finding, rows)
    if json:
        for row in rows:
            print_json(as_json(row))
        return ExitCode.OK
    if not rows:
        put("no runbook" + (f" answers {finding}" if finding else ""))
        return ExitCode.OK
    put(format_columns(["runbook", "title", "answers", "from"], [_cells(row) for row in rows]))
    for row in rows:
        for path in row.entry.shadows:
            put(f"\n{row.entry.id}: {row.entry.path} is used, not {path}")
    return ExitCode.OK


def as_json(row: ListedRunbook) -> dict[str, object]:
    """One runbook as an object."""
    return {
        "id": row.entry.id,
        "title": row.title,
        "answers": list(row.answers),
        "from": row.entry.origin,
        "path": str(row.entry.path),
        "shadows": [str(path) for path in row.entry.shadows],
        "problems": len(row.problems),
        "error": row.error or None,
    }


def _cells(row: ListedRunbook) -> list[str]:
    title = f"cannot be run: {row.error}" if row.problems else row.title
    return [row.entry.id, title, ", ".join(row.answers) or "-", row.entry.origin]
