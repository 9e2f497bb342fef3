"""`dba-console runbook runs`: what was run, and the story of one run. Reads files; needs no agent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dba_console.agent.runs.earlier_runs import read_summary
from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.options import Json
from dba_console.cli.output import columns, put_json
from dba_console.cli.session_text import local_time
from dba_console.cli.stdout import put
from dba_console.errors import ExitCode, SessionError
from dba_console.runbook import compare as comparing
from dba_console.runbook.apply_records import record_errors, replay_records
from dba_console.runbook.run_report import report_lines
from dba_console.runbook.summary import RunSummary, summarize
from dba_console.runbook.typical_duration import ComparisonKey, typical_durations
from dba_console.sanitize import clean
from dba_console.session.layout import require_readable
from dba_console.session.run_listing import RunRow, all_run_directories, list_runs, resolve_run, row_of_run
from dba_console.session.run_paths import parse_run_id, session_of
from dba_console.session.run_reader import StoredRun, read_run
from dba_console.units import UNKNOWN, human_duration

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A run's id, its beginning or its last four signs, or last; with --compare also a runbook's name.",
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="What each step took, beside the runs before it of the same runbook.")
]
Count = Annotated[int, typer.Option("--count", min=2, max=50, help="With --compare: how many runs, the newest ones.")]
_HEAD = ("run", "began", "lasted", "target", "mode", "state", "ending")


def runs(run: Run = None, compare: Compare = False, count: Count = 4, json: Json = False) -> int:
    """Every run, newest first; of one run the whole story: what was done, by whom, how long it took, how it ended.

    --compare: runs of one runbook side by side, about the same databases or cluster; rehearsals only with rehearsals.
    """
    sessions = sessions_directory(load_config().config)
    if compare:
        return _side_by_side(run or "last", sessions, count, json=json)
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


def _side_by_side(name: str, sessions: Path, count: int, *, json: bool) -> int:
    newest, earlier = _comparable(name, sessions)
    subject = ComparisonKey(newest.runbook, newest.identity, newest.about)
    alike = [one for one in earlier if subject.matches(one) and one.mode == newest.mode]
    chosen = [*alike, newest][-count:]
    rows = comparing.compare(chosen)
    if json:
        put_json({"runbook": newest.runbook, "about": newest.about, "mode": newest.mode, "runs": chosen, "rows": rows})
        return ExitCode.OK
    head, *lines = comparing.table(chosen, rows, _minute)
    what = "rehearsals" if newest.mode == "rehearse" else "runs"
    put(clean(f"{what} of {newest.runbook}" + (f", {newest.about}" if newest.about else "")) + "\n")
    put(columns([clean(one) for one in head], lines, right=range(1, len(head))))
    return ExitCode.OK


def _comparable(name: str, sessions: Path) -> tuple[RunSummary, list[RunSummary]]:
    """The run that is meant, and those of its runbook that began before it, oldest first. Raises SessionError."""
    require_readable(sessions)
    books: dict[str, list[Path]] = {}
    for directory in all_run_directories(sessions):
        if (parsed := parse_run_id(directory.name)) is not None:
            books.setdefault(parsed.runbook, []).append(directory)
    newest: RunSummary | None = None
    if name in books:
        ended = [summary for one in reversed(books[name]) if (summary := read_summary(one)) is not None]
        newest = next((one for one in ended if one.mode == "run"), next(iter(ended), None))
    else:
        newest = read_summary(resolve_run(name, sessions))
    if newest is None:
        raise SessionError(f"{name} has no run that has ended, so there is nothing to compare")
    every = [summary for one in books.get(newest.runbook, ()) if (summary := read_summary(one)) is not None]
    return newest, [one for one in every if one.started_us < newest.started_us]


def _minute(wall_us: int) -> str:
    return f"{datetime.fromtimestamp(wall_us / 1e6):%m-%d %H:%M}"


def _cells(row: RunRow) -> list[str]:
    lasted = None if row.ended_us is None or row.began_us is None else (row.ended_us - row.began_us) / 1e6
    about = row.about
    return [
        row.run, UNKNOWN if row.began_us is None else local_time(row.began_us),
        UNKNOWN if lasted is None else human_duration(lasted), UNKNOWN if about is None else about.target,
        UNKNOWN if about is None else about.mode, row.state, row.ending or row.note or "",
    ]  # fmt: skip


def _one(papers: StoredRun, *, json: bool) -> int:
    with record_errors():
        return _told(papers, json=json)


def _told(papers: StoredRun, *, json: bool) -> int:
    kept = read_summary(papers.directory)
    usual = (
        {}
        if kept is None
        else typical_durations(ComparisonKey(kept.runbook, kept.identity, kept.about), earlier_than(papers))
    )
    if json:
        told = None
        if papers.plan is not None:
            about = "" if kept is None else kept.about
            told = summarize(papers.plan, replay_records(papers.plan, papers.records), usual, about=about)
        whole: dict[str, Any] = msgspec.to_builtins(row_of_run(papers))
        put_json({**whole, "summary": told, "records": papers.records})
        return ExitCode.OK
    lines = [f"! {papers.damage}"] if papers.damage else []
    lines += [f"note: {note}" for note in papers.notes]
    if papers.plan is not None:
        lines += report_lines(papers.plan, papers.records, when=local_time, usual=usual)
    else:
        lines += bare_story(papers)
    put("\n".join(clean(line) for line in [*lines, f"kept in {papers.directory}"]))
    return ExitCode.OK


def bare_story(papers: StoredRun) -> list[str]:
    """What its records say, where its plan is lost."""
    row, about = row_of_run(papers), papers.about
    head = [f"{about.runbook}: {about.title}", f"{about.run} ({about.mode}), {row.state}", f"on {about.target}", ""]
    return head + [
        f"{local_time(record.wall_us)} {record.text}{f' ({record.who})' if record.who else ''}"
        for record in papers.records
    ]


def earlier_than(papers: StoredRun) -> Iterator[RunSummary]:
    """The figures of runs that ended before this one began, as they were kept beside their journals."""
    for directory in all_run_directories(session_of(papers.directory).parent):
        if directory.name == papers.directory.name:
            return
        summary = read_summary(directory)
        if summary is not None:
            yield summary
