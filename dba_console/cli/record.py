"""`dba-console record`: run the agent in the foreground, without a terminal, until SIGTERM, SIGINT or --for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.options import Dsn, SessionsOption, new_app
from dba_console.cli.sessions_directory_check import unwritable_reason
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.config import Config
from dba_console.core.errors import SessionError
from dba_console.core.target import Target
from dba_console.core.units import human_duration, parse_duration

app = new_app("Watch and record without a terminal.")


@app.command()
def record(
    dsn: Dsn = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time, as in 10m.")] = None,
    sessions: SessionsOption = None,
) -> NoReturn:
    """Watch the server and record it, in the foreground until SIGTERM, Ctrl-C or --for.

    Consoles attach to it as to any agent: dba-console attach.
    """
    loaded = load_config(sessions=sessions)
    for_s = None if for_ is None else parse_duration(for_)
    run_record(resolve_target(dsn, loaded), loaded.config, for_s, sessions_directory(loaded.config))


def run_record(target: Target, config: Config, for_s: float | None, sessions: Path) -> NoReturn:
    """Replace this process by the agent. Raises SessionError if nothing could be recorded.

    A console works without a recording, because its purpose is the live picture; the purpose of this command is to
    record.
    """
    if (reason := unwritable_reason(sessions)) is not None:
        hint = "name another directory with --sessions or $DBA_CONSOLE_SESSIONS"
        raise SessionError(f"cannot record to {sessions}: {reason}", hint=hint)
    from dba_console.agent.find_or_start import exec_agent, find_agent

    how_long = "until SIGTERM or Ctrl-C" if for_s is None else f"for {human_duration(for_s)}"
    if find_agent(target) is None:
        print_diagnostic(f"watching {target.name} {how_long}; sessions are written to {sessions}")
    exec_agent(target, config, for_s=for_s, sessions=sessions)
