"""`dba-console report summary`: the summary of a period, made from every session recorded in it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.error_handling import interrupted_by_signals
from dba_console.cli.options import Json, SessionsOption
from dba_console.cli.stderr import print_diagnostic, show_progress
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, UsageError
from dba_console.core.units import parse_duration


def summary(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SESSION…", help="Sessions; default: all recorded in the time before now."),
    ] = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="How far back from now, or from the end of the sessions named."),
    ] = "7d",
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="Time a dump may take, as 8h; default: configured.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write summary.md, summary.html and summary.json there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier summary.")] = False,
    json: Json = False,
    sessions: SessionsOption = None,
) -> int:
    """Summarize a period, per server: Markdown on standard output, or three files with --out.

    Dates to come (disk full, transaction ids, a dump that outgrows its window), findings with how often and how long,
    dumps and restores with their trend, runs and rehearsals, growth, and what was not recorded.
    """
    if (since_s := parse_duration(since)) <= 0:
        raise UsageError(f"--since {since}: must be greater than zero", hint="how far back, as 7d or 24h")
    if json and out is not None:
        raise UsageError("--json prints, --out writes files", hint="give only one of them")
    from dba_console.jobs.history.duration_trend import windows_of
    from dba_console.reports.documents import write_documents
    from dba_console.reports.summary import summarize_period, summary_documents, summary_json, summary_markdown

    loaded = load_config(sessions=sessions)
    made_us = time.time_ns() // 1000
    paths, to_us = _chosen(sessions_directory(loaded.config), names or [], made_us)
    found = summarize_period(
        paths, to_us - int(since_s * 1e6), to_us, windows_of(loaded.config.jobs, window),
        lambda share: show_progress(f"{share:.0%}"),
    )  # fmt: skip
    show_progress("")
    if problems := len(found.missing) + sum(len(server.missing) for server in found.servers):
        print_diagnostic(
            f"warning: {problems} of {len(paths)} sessions are damaged or cannot be read; the summary names them"
        )
    if out is not None:
        with interrupted_by_signals():
            written = write_documents(out, summary_documents(found, made_us), overwrite=force)
        for path in written:
            put(str(path))
    else:
        put(summary_json(found) if json else summary_markdown(found, made_us))
    return ExitCode.OK


def _chosen(directory: Path, names: list[str], now_us: int) -> tuple[list[Path], int]:
    """Return the sessions and the end of the period: now, or the end of the sessions named."""
    from dba_console.recording.layout import require_readable, session_directories
    from dba_console.recording.recording import Recording
    from dba_console.recording.session_lookup import resolve

    if not names:
        require_readable(directory)
        return session_directories(directory), now_us
    paths = list(dict.fromkeys(resolve(name, directory) for name in names))
    ends = []
    for path in paths:
        with closing(Recording.open(path)) as recording:
            ends.append(recording.last_us)
    return paths, max(ends)
