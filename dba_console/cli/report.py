"""`dba-console report`: documents made from recordings. Reads files; needs neither an agent nor a server."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.error_handling import interrupted_by_signals
from dba_console.cli.options import SessionsOption, new_app
from dba_console.cli.report_summary import summary
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, UsageError

app = new_app("Documents made from recordings: postmortem, summary.")


@app.callback()
def report() -> None:
    """Make documents from recordings."""


app.command("summary")(summary)


@app.command("postmortem")
def postmortem(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or unique prefix, or last.")],
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start of the report. TIME as in replay --at.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the report.")] = None,
    finding: Annotated[
        str | None, typer.Option("--finding", metavar="ID", help="The last time this finding or rule was open.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="With --finding: a time at which it was open.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="A run of a runbook, or last.")] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SESSION", help="Another session on the same time axis; may be repeated."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Everything unfolded: all events, statements, screens, charts.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write; default: here.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier report.")] = False,
    sessions: SessionsOption = None,
) -> int:
    """Write the facts of an incident: postmortem.md and postmortem.html, one file each.

    Default: about the most severe finding of the session, with the minutes before and after.

    Times, impact, timeline, decisions, runs of runbooks against their plan, charts, and the causes that the console
    concluded, on about four pages; the page has the rest folded. What only people know is left open.
    """
    _refuse_contradictions(finding, run, at, spanned=from_ is not None or to is not None)
    from dba_console.cli.replay import parse_time
    from dba_console.recording.recording import Recording
    from dba_console.recording.session_lookup import resolve_hosts
    from dba_console.reports.postmortem.gather import Asked
    from dba_console.reports.postmortem.render import write_postmortem

    gc.disable()  # what is read is kept until the end: looking for garbage takes a third of the time
    loaded = load_config(sessions=sessions)
    paths = resolve_hosts(name, with_ or (), sessions_directory(loaded.config))
    with interrupted_by_signals(), ExitStack() as opened:
        recordings = [Recording.open(path) for path in paths]
        for one in recordings:
            opened.callback(one.close)
        asked = Asked(
            from_us=None if from_ is None else parse_time(recordings[0], from_),
            to_us=None if to is None else parse_time(recordings[0], to),
            finding=finding,
            run=run,
            at_us=None if at is None else parse_time(recordings[0], at),
        )
        written = write_postmortem(recordings[0], asked, out, others=recordings[1:], full=full, overwrite=force)
        for one in recordings:
            if one.damage:
                print_diagnostic(f"warning: {one.directory.name}: {one.damage}")
    for path in written:
        put(str(path))
    return ExitCode.OK


def _refuse_contradictions(finding: str | None, run: str | None, at: str | None, *, spanned: bool) -> None:
    """Raise UsageError for options that both choose the span."""
    chosen = [option for option, value in (("--finding", finding), ("--run", run)) if value is not None]
    chosen += ["--from and --to"] if spanned else []
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} both choose the span", hint="give only one of them")
    if at is not None and finding is None:
        raise UsageError("--at needs --finding", hint="--from and --to choose a span")
