"""`dba-console demo`: the practice ground as a command."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.options import new_app
from dba_console.units import parse_duration

app = new_app("An embedded server under load, and the console on it.")


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No screen: record, then print the overview.")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time, as in 60s.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server's files for a later look.")] = False,
) -> int:
    """An embedded PostgreSQL under a pgbench load with idle sessions, and the console on it.

    Without a terminal it runs for 20 s and prints the overview as text. Everything is stopped at the end.
    """
    from dba_console.demo.command import run_demo

    return run_demo(headless, None if for_ is None else parse_duration(for_), keep)
