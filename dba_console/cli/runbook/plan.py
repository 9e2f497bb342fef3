"""`dba-console runbook plan`: what a run with these inputs would do. Touches nothing, needs no server."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from dba_console.cli.formatting import print_json
from dba_console.cli.options import Json
from dba_console.cli.runbook.arguments import Inputs, Name, find_document, known_actions, parse_inputs
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode
from dba_console.plans.plan import plan_hash
from dba_console.runbook.outline import plan_lines
from dba_console.runbook.values import bind_inputs, typed
from dba_console.sanitize import clean


def plan(
    name: Name,
    input: Inputs = None,
    dsn: Annotated[
        str | None, typer.Option("--dsn", metavar="DSN", help="Taken as for `run`; nothing is connected to.")
    ] = None,
    json: Json = False,
) -> int:
    """The steps in their order, with inputs, confirmations and usual times. Nothing is run and nothing is asked."""
    read = find_document(name).plan(known_actions())
    values = typed(read, parse_inputs(input))
    resolved = bind_inputs(read, values)
    secret = {one.name for one in read.inputs if one.secret}
    public_values = {one: None if one in secret else value for one, value in values.items()}
    if json:
        print_json(
            {"hash": plan_hash(read, public_values), "inputs": public_values, "plan": msgspec.to_builtins(resolved)}
        )
        return ExitCode.OK
    put("\n".join(clean(line) for line in plan_lines(resolved, values)))
    put(f"plan {plan_hash(read, public_values)[:16]}; nothing was run")
    return ExitCode.OK
