"""`dba-console demo`: start practice servers under load, and open the console on them."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.options import new_app
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode
from dba_console.core.units import parse_duration

app = new_app("Open the console on an embedded server under load.")


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No screen: record, then print the overview.")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time, as in 60s.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the server's files after the end.")] = False,
    incident: Annotated[
        str | None, typer.Option("--incident", metavar="NAME", help="Cause an incident; --list shows the names.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="A primary, two standbys and a pooler, to rehearse a cutover.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the incidents, one per line.")] = False,
) -> int:
    """Run an embedded PostgreSQL with a pgbench load and idle sessions, and open the console on it.

    Without a terminal it runs for 20 s and prints the overview as text. Everything is stopped at the end. With
    --incident, the incident starts after a few seconds of normal load; without a terminal the exit code is 0 if the
    console detected it, 1 if not.

    With --cluster: a primary db1, its standbys db2 and db3, an archive, PgBouncer if it is installed, and a load that
    keeps a ledger of its commits: `cluster check demo --to db2`, `runbook run cutover`.
    """
    if list_:
        from dba_console.demo.incidents.registry import incident_list

        put(incident_list())
        return ExitCode.OK
    from dba_console.demo.command import run_demo

    return run_demo(headless, None if for_ is None else parse_duration(for_), keep, incident, cluster)
