"""`dba-console runbook show`: a runbook as it was understood."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.formatting import print_json
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import Name, find_document, known_actions
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode
from dba_console.runbook.outline import full_lines
from dba_console.sanitize import clean


def show(
    name: Name,
    text: Annotated[bool, typer.Option("--text", help="The document itself, as it stands in its file.")] = False,
    json: Json = False,
) -> int:
    """The compiled runbook: prose, inputs, each step with what would run, verbatim. --json: the plan as an object."""
    found = find_document(name)
    if text:
        put("\n".join(clean(line) for line in found.text.splitlines()))
        return ExitCode.OK
    plan = found.plan(known_actions())
    if json:
        print_json(plan)
    else:
        put("\n".join(clean(line) for line in full_lines(plan)))
    return ExitCode.OK
