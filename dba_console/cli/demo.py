"""`dba-console demo`: an embedded server under load, and the console on it."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.options import new_app
from dba_console.units import parse_duration

app = new_app("An embedded server under load, and the console on it. Everything is gone when it ends.")


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="No console: record, then print the overview.")] = False,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long, as 60s or 5m; headless: 20s.", show_default=False),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server's directory for a look afterwards.")] = False,
) -> int:
    """Start a server, a pgbench load and idle sessions, and open the console on them."""
    from dba_console.demo.command import run_demo

    return run_demo(headless, None if duration is None else parse_duration(duration), keep)
