"""`dba-console runbook runs`: what was run, and the story of one run. Reads files; needs no agent."""

from __future__ import annotations

from typing import Annotated

import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.options import Json
from dba_console.cli.output import columns, put_json
from dba_console.cli.session_text import local_time
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode
from dba_console.harmless import clean
from dba_console.session.layout import require_readable
from dba_console.session.runlisting import RunRow, list_runs, resolve_run, row_of_papers
from dba_console.session.runread import RunPapers, read_run
from dba_console.units import UNKNOWN, human_duration

Run = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id, its beginning or its last four signs, or last.")
]
_HEAD = ("run", "began", "lasted", "target", "mode", "state", "ending")


def runs(run: Run = None, json: Json = False) -> int:
    """Every run, newest first; of one run the whole story: what was done, by whom, how long it took, how it ended."""
    sessions = sessions_directory(load_config().config)
    if run is not None:
        return _one(read_run(resolve_run(run, sessions)), json=json)
    require_readable(sessions)
    rows = list_runs(sessions)[::-1]
    if json:
        for row in rows:
            put_json(row)
    elif rows:
        put(columns(_HEAD, [_cells(row) for row in rows], right=(2,)))
    else:
        put(f"no run in {sessions}")
    return ExitCode.OK


def _cells(row: RunRow) -> list[str]:
    lasted = None if row.ended_us is None or row.began_us is None else (row.ended_us - row.began_us) / 1e6
    about = row.about
    return [
        row.run, UNKNOWN if row.began_us is None else local_time(row.began_us),
        UNKNOWN if lasted is None else human_duration(lasted), UNKNOWN if about is None else about.target,
        UNKNOWN if about is None else about.mode, row.state, row.ending or row.note or "",
    ]  # fmt: skip


def _one(papers: RunPapers, *, json: bool) -> int:
    if json:
        for record in papers.records:
            put_json(record)
        return ExitCode.OK
    put("\n".join(clean(line) for line in story_of(papers)))
    return ExitCode.OK


def story_of(papers: RunPapers) -> list[str]:
    """The run in lines: what it was, what happened when, and what can be said of it as a whole."""
    row, about = row_of_papers(papers), papers.about
    lines = [
        f"{about.runbook}: {about.title}",
        f"{about.run} ({about.mode}), {row.state}",
        f"on {about.target}{f', begun by {about.who}' if about.who else ''}",
        str(papers.directory),
        *([f"! {papers.damage}"] if papers.damage else []),
        *(f"note: {note}" for note in papers.notes),
        "",
    ]
    lines += [
        f"{local_time(record.wall_us)} {record.text}{f' ({record.who})' if record.who else ''}"
        for record in papers.records
        if not record.kind.startswith("journal.")
    ]
    return lines
