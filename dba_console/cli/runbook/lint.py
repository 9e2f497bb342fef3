"""`dba-console runbook lint`: what keeps a document from being run, with file, line and what was meant."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.formatting import print_json
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import known_actions, runbook_directories
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode
from dba_console.runbook.compile import CheckResult
from dba_console.runbook.library import RunbookDocument, entries, find
from dba_console.runbook.outline import block_counts
from dba_console.sanitize import clean


def lint(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE]…", help="Runbooks or files; default: every runbook there is."),
    ] = None,
    json: Json = False,
) -> int:
    """Check documents without touching anything. Exit code 2 where one of them could not be run."""
    configured = runbook_directories()
    wanted = names or [entry.id for entry in entries(configured)]
    worst = ExitCode.OK
    for name in wanted:
        found = find(name, configured)
        checked = found.checked(known_actions())
        if checked.problems:
            worst = ExitCode.USAGE
        _print_problems(found, checked, json)
    return worst


def _print_problems(found: RunbookDocument, checked: CheckResult, json: bool) -> None:
    for problem in checked.problems:
        if json:
            print_json(
                {
                    "file": found.source,
                    "line": problem.line,
                    "text": problem.text,
                    "hint": problem.hint or None,
                    "rule": problem.rule or "format",
                }
            )
        else:
            put("\n".join(clean(line) for line in problem.formatted(found.source).splitlines()))
    if checked.plan is not None and not json:
        put(f"{clean(found.source)}: {block_counts(checked.plan)}")
