"""`dba-console runbook runs`: list runs, report one run, compare runs. Reads files; needs no agent."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dba_console.cli.config_file import load_config, sessions_directory
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json
from dba_console.cli.session import local_time
from dba_console.cli.stdout import put
from dba_console.core.errors import ExitCode, SessionError
from dba_console.core.sanitize import clean
from dba_console.core.units import UNKNOWN, human_duration
from dba_console.recording.layout import require_readable
from dba_console.recording.run_paths import parse_run_id, session_of
from dba_console.recording.run_reader import (
    RunRow,
    StoredRun,
    all_run_directories,
    list_runs,
    read_run,
    resolve_run,
    row_of_run,
)
from dba_console.runbooks import run_report
from dba_console.runbooks.apply_records import record_errors, replay_records
from dba_console.runbooks.run_report import report_lines
from dba_console.runbooks.run_summary import (
    ComparisonKey,
    RunSummary,
    read_summary,
    summaries_of,
    summarize,
    typical_durations,
)

Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]",
        help="A run's id, unique prefix or last four characters, or last; with --compare also a runbook's name.",
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Duration of each step, beside earlier runs of the same runbook.")
]
Count = Annotated[int, typer.Option("--count", min=2, max=50, help="With --compare: number of runs, newest first.")]
_COLUMNS = ("run", "began", "lasted", "target", "mode", "state", "ending")


def runs(run: Run = None, compare: Compare = False, count: Count = 4, json: Json = False) -> int:
    """List the runs, newest first, or report one run.

    The report shows what was done, by whom, the durations and how it ended.

    --compare: runs of one runbook on the same databases or cluster side by side; rehearsals only with rehearsals.
    """
    sessions = sessions_directory(load_config().config)
    if compare:
        return _print_comparison(run or "last", sessions, count, json=json)
    if run is not None:
        return _print_run(read_run(resolve_run(run, sessions)), json=json)
    require_readable(sessions)
    rows = list_runs(sessions)[::-1]
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        put(format_columns(_COLUMNS, [_cells(row) for row in rows], right=(2,)))
    else:
        put(f"no run in {sessions}")
    return ExitCode.OK


def _print_comparison(name: str, sessions: Path, count: int, *, json: bool) -> int:
    newest, earlier = _find_comparable(name, sessions)
    subject = ComparisonKey(newest.runbook, newest.identity, newest.about)
    comparable = [one for one in earlier if subject.matches(one) and one.mode == newest.mode]
    chosen = [*comparable, newest][-count:]
    rows = run_report.compare(chosen)
    if json:
        print_json(
            {"runbook": newest.runbook, "about": newest.about, "mode": newest.mode, "runs": chosen, "rows": rows}
        )
        return ExitCode.OK
    head, *lines = run_report.table(chosen, rows, _minute_text)
    what = "rehearsals" if newest.mode == "rehearse" else "runs"
    put(clean(f"{what} of {newest.runbook}" + (f", {newest.about}" if newest.about else "")) + "\n")
    put(format_columns([clean(one) for one in head], lines, right=range(1, len(head))))
    return ExitCode.OK


def _find_comparable(name: str, sessions: Path) -> tuple[RunSummary, list[RunSummary]]:
    """Return the named run, and the earlier runs of its runbook, oldest first. Raises SessionError."""
    require_readable(sessions)
    runbooks = {run.runbook for one in all_run_directories(sessions) if (run := parse_run_id(one.name)) is not None}
    if name in runbooks:
        ended = list(summaries_of(name, sessions))
        newest = next((one for one in ended if one.mode == "run"), next(iter(ended), None))
    else:
        newest = read_summary(resolve_run(name, sessions))
    if newest is None:
        raise SessionError(f"{name} has no run that ended, so there is nothing to compare")
    return newest, _earlier(newest, sessions)


def _earlier(summary: RunSummary, sessions: Path) -> list[RunSummary]:
    """Return the summaries of the earlier runs of its runbook, oldest first."""
    return [one for one in summaries_of(summary.runbook, sessions) if one.started_us < summary.started_us][::-1]


def _minute_text(wall_us: int) -> str:
    return f"{datetime.fromtimestamp(wall_us / 1e6):%m-%d %H:%M}"


def _cells(row: RunRow) -> list[str]:
    duration = None if row.ended_us is None or row.began_us is None else (row.ended_us - row.began_us) / 1e6
    about = row.about
    return [
        row.run, UNKNOWN if row.began_us is None else local_time(row.began_us),
        UNKNOWN if duration is None else human_duration(duration), UNKNOWN if about is None else about.target,
        UNKNOWN if about is None else about.mode, row.state, row.ending or row.note or "",
    ]  # fmt: skip


def _print_run(stored_run: StoredRun, *, json: bool) -> int:
    with record_errors():
        return _print_report(stored_run, json=json)


def _print_report(stored_run: StoredRun, *, json: bool) -> int:
    stored_summary = read_summary(stored_run.directory)
    typical = (
        {}
        if stored_summary is None
        else typical_durations(
            ComparisonKey(stored_summary.runbook, stored_summary.identity, stored_summary.about),
            _earlier(stored_summary, session_of(stored_run.directory).parent),
        )
    )
    if json:
        summary = None
        if stored_run.plan is not None:
            about = "" if stored_summary is None else stored_summary.about
            summary = summarize(
                stored_run.plan, replay_records(stored_run.plan, stored_run.records), typical, about=about
            )
        whole: dict[str, Any] = msgspec.to_builtins(row_of_run(stored_run))
        print_json({**whole, "summary": summary, "records": stored_run.records})
        return ExitCode.OK
    lines = [f"! {stored_run.damage}"] if stored_run.damage else []
    lines += [f"note: {note}" for note in stored_run.notes]
    if stored_run.plan is not None:
        lines += report_lines(stored_run.plan, stored_run.records, when=local_time, usual=typical)
    else:
        lines += record_lines(stored_run)
    put("\n".join(clean(line) for line in [*lines, f"stored in {stored_run.directory}"]))
    return ExitCode.OK


def record_lines(stored_run: StoredRun) -> list[str]:
    """Return the records as text, if the plan is lost."""
    row, about = row_of_run(stored_run), stored_run.about
    head = [f"{about.runbook}: {about.title}", f"{about.run} ({about.mode}), {row.state}", f"on {about.target}", ""]
    return head + [
        f"{local_time(record.wall_us)} {record.text}{f' ({record.who})' if record.who else ''}"
        for record in stored_run.records
    ]
