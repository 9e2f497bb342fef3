"""`dba-console session`: list, show, report, export, share, verify, pin, prune. Only the last two change sessions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, SessionsOption, new_app
from dba_console.cli.session_export import export
from dba_console.cli.session_notes import import_notes, note
from dba_console.cli.session_share import share
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.core.errors import ExitCode, SessionError, Unsupported, UsageError
from dba_console.core.redact import redact
from dba_console.core.target import Address, address_of, looks_like_conninfo
from dba_console.core.units import UNKNOWN, human_bytes, human_duration, parse_duration, parse_size
from dba_console.jobs.history.duration_trend import (
    JobWindows,
    PastRun,
    PastRuns,
    TargetJobHistory,
    WindowForecast,
    forecast_window,
    windows_of,
)
from dba_console.jobs.history.history_reader import read_job_history
from dba_console.jobs.pages.history_page import history_detail, job_runs_detail
from dba_console.recording.backlog import Gap
from dba_console.recording.layout import require_readable
from dba_console.recording.recording import Recording
from dba_console.recording.retention import Candidate, candidates, prune
from dba_console.recording.run_paths import run_directories
from dba_console.recording.run_reader import RunRow
from dba_console.recording.run_reader import row_of as run_row
from dba_console.recording.session_lookup import ListedSession, list_sessions, pin, resolve, row_of
from dba_console.recording.verify import Verification, verify
from dba_console.watch.drawing.text_elements import Detail, Line, Span, clean, line_text, table_lines
from dba_console.watch.drawing.time_formats import date_and_time, format_rfc3339
from dba_console.watch.samples.event import Event

# `session report --dumps`: every known dump and restore of a server, its trend, and when it exceeds its window.
#
# Uses the texts of the screen. Reads the agents' files, and needs neither an agent nor a server.


def report_dumps(
    target_key: str, target_name: str, windows: JobWindows, *, address: Address | None = None, json: bool, width: int
) -> int:
    """Print the report. Exit code 0 also if no job is known. `address`: see `read_job_history`."""
    past = read_job_history(target_key, address)
    if json:
        for job in past.jobs:
            print_json(job_object(job, windows))
    else:
        put("\n".join(report_lines(past, target_name, windows, width)))
    return ExitCode.OK


def check_window(text: str | None) -> str | None:
    """Return the option unchanged. Raises UsageError for a window that is not positive."""
    from dba_console.core.units import parse_duration

    if text is not None and parse_duration(text) <= 0:
        raise UsageError(f"--window {text}: must be greater than zero", hint="how long a job may take, as 8h or 90m")
    return text


def report_lines(past: TargetJobHistory, target_name: str, windows: JobWindows, width: int) -> list[str]:
    """Return the report as text: all jobs in a table, then each job with its summary and runs."""
    whole = history_detail(past, windows, width)
    lines = [f"{whole.title}: {target_name}", *(line_text(one) for one in whole.head)]
    if not past.jobs:
        return lines
    lines += ["", *_table(whole, width)]
    for job in past.jobs:
        detail = job_runs_detail(job, windows, width)
        lines += ["", f"{detail.title}", *(line_text(one) for one in detail.head), *_table(detail, width)]
    return lines


def _table(detail: Detail, width: int) -> list[str]:
    table = detail.tables[0]
    lines: list[Line] = table_lines(table.columns, table.rows, width - 2)
    return [line_text((Span("  "), *one)) for one in lines]


def job_object(job: PastRuns, windows: JobWindows) -> dict[str, Any]:
    """Return one job as JSON; unknown is null."""
    found = forecast_window(job.runs, windows.for_job(job))
    return {
        "job": job.name,
        "kind": job.kind,
        "database": job.database,
        "user": job.user,
        "format": job.format,
        "usual_s": job.usual_s,
        "watched_since": None if job.watched_since_us is None else format_rfc3339(job.watched_since_us),
        "trend": _trend(found),
        "window": _window(found),
        "runs": [_run(run) for run in job.runs],
    }


def _trend(found: WindowForecast) -> dict[str, Any]:
    trend = found.trend
    return {
        "verdict": {"few": "unknown"}.get(trend.verdict, trend.verdict),
        "runs": trend.runs,
        "days": round(trend.days, 3),
        "per_day_s": trend.per_day_s,
        "per_day_low_s": trend.low_s,
        "per_day_high_s": trend.high_s,
        "now_s": trend.now_s,
        "spread_s": trend.spread_s,
    }


def _window(found: WindowForecast) -> dict[str, Any] | None:
    """Return None without a window. `outgrown_at` is null if it does not grow, is unknown, or is too far ahead."""
    if found.window_s is None:
        return None
    return {
        "seconds": found.window_s,
        "runs_over": found.over,
        "outgrown": found.beyond if found.trend.verdict != "few" else None,
        "outgrown_at": _optional_rfc3339(found.day_us),
        "earliest": _optional_rfc3339(found.earliest_us),
        "latest": _optional_rfc3339(found.latest_us),
        "too_far_ahead": found.too_far,
    }


def _optional_rfc3339(at_us: int | None) -> str | None:
    return None if at_us is None else format_rfc3339(at_us)


def _run(run: PastRun) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(run)
    for name in ("started_us", "exit_tells", "unbroken", "reached", "source"):
        del fields[name]
    error = run.last_error
    return {
        "started": format_rfc3339(run.started_us),
        "ended": format_rfc3339(run.ended_us),
        "ending": run.ending,
        **fields,
        "phases": [msgspec.structs.asdict(phase) for phase in run.phases],
        "last_error": None if error is None else redact(error),
    }


# Sessions as text lines. Pure. Times are local, as in session.log; a line that stands alone has the zone.

LIST_HEAD = ("id", "start", "duration", "target", "host", "samples", "size", "state")
LIST_RIGHT = (2, 5, 6)


def list_row(row: ListedSession) -> list[str]:
    """Return one row of `session list`."""
    state = f"{row.state}, pinned" if row.pinned else row.state
    return [
        row.id, local_time(row.start_us), human_duration(row.duration_s), row.target or UNKNOWN, row.host,
        UNKNOWN if row.samples is None else str(row.samples), human_bytes(row.bytes), state,
    ]  # fmt: skip


def show_lines(
    row: ListedSession, gaps: Sequence[Gap], events: Sequence[Event], runs: Sequence[RunRow] = ()
) -> list[str]:
    """Return `session show`: summary, gaps, runs, last events."""
    end = "" if row.end_us is None else f" to {local_time(row.end_us)}"
    lines = [
        f"{row.target or UNKNOWN} on {row.host}, {row.state}{', pinned' if row.pinned else ''}",
        f"{local_time(row.start_us)}{end} ({utc_offset(row.start_us)}), {human_duration(row.duration_s)}",
        f"{UNKNOWN if row.samples is None else row.samples} samples, {human_bytes(row.bytes)} on disk",
        row.path,
    ]
    if row.continues:
        lines.append(f"continues {row.continues}, which ended without shutdown")
    if row.redacted:
        lines.append(f"a redacted copy of another session (level {row.redacted})")
    if row.note:
        lines.append(f"! {row.note}")
    lines += ["", "gaps" if gaps else "no gaps"]
    lines += [
        f"  {local_time(gap.from_us)} {human_duration((gap.to_us - gap.from_us) / 1e6)}: {gap.reason}" for gap in gaps
    ]
    if runs:
        lines += ["", "runs", *(f"  {run_line(run)}" for run in runs)]
    lines += ["", "last events"]
    lines += [f"  {local_time(event.happened_us)} {event.tag}: {event_text(event)}" for event in events]
    return [clean(one) for one in lines]


def event_text(event: Event) -> str:
    """Return the text of an event on one line; of a note about another time also when it was recorded."""
    text = " ".join(event.text.split())
    return text if event.occurred_us is None else f"{text} (recorded {local_time(event.wall_us)})"


def verify_lines(name: str, found: Verification) -> list[str]:
    """Return `session verify`: the verdict, what was checked, what could not be checked."""
    verdict = "verified" if found.ok else f"CHANGED: {found.first_bad}"
    lines = [f"{name}: {verdict}", f"checked: {', '.join(found.checked)}", f"not checked: {', '.join(found.unchecked)}"]
    if found.head:
        lines.append(f"hash of the newest event: {found.head}")
    lines += [f"note: {note}" for note in found.notes]
    for run in found.runs:
        run_verdict = "verified" if run.ok else f"CHANGED: {run.first_bad}"
        lines += [f"run {run.run}: {run_verdict}, {run.records} records", *(f"note: {note}" for note in run.notes)]
    return [clean(one) for one in lines]


def run_line(row: RunRow) -> str:
    """Return one run as a line: id, state, ending, start, duration."""
    if row.began_us is None:
        return f"{row.run}: {row.state}: {row.note}"
    duration = None if row.ended_us is None else (row.ended_us - row.began_us) / 1e6
    took = "" if duration is None else f", {human_duration(duration)}"
    note = f"; {row.note}" if row.note else ""
    return f"{local_time(row.began_us)} {row.run}: {row.state}{took}{': ' + row.ending if row.ending else ''}{note}"


def local_time(wall_us: int) -> str:
    """Return `2026-11-20 14:53:07`, local time."""
    return date_and_time(wall_us)


def utc_offset(wall_us: int) -> str:
    """Return the local zone at that time, as `UTC+01:00`."""
    try:
        offset = datetime.fromtimestamp(wall_us / 1e6).astimezone().strftime("%z")
    except (ValueError, OverflowError, OSError):
        return UNKNOWN  # the time of a modified recording may be outside the calendar
    return f"UTC{offset[:3]}:{offset[3:5]}"


app = new_app("Recordings: list, show, report, export, share, verify, add notes, pin, unpin, prune.")
app.command("note")(note)
app.command("import-notes")(import_notes)

Name = Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or unique prefix, or last.")]


@app.command("list")
def list_(json: Json = False, sessions: SessionsOption = None) -> int:
    """List the sessions, newest first."""
    directory = sessions_directory(load_config(sessions=sessions).config)
    require_readable(directory)
    rows = list_sessions(directory)[::-1]
    if json:
        for row in rows:
            print_json(row)
    elif rows:
        put(format_columns(LIST_HEAD, [list_row(row) for row in rows], right=LIST_RIGHT))
    else:
        put(f"no session in {directory}")
    return ExitCode.OK


@app.command("show")
def show(name: Name = "last", json: Json = False, sessions: SessionsOption = None) -> int:
    """Show one session: times, target, size, gaps and last events."""
    path = resolve(name, sessions_directory(load_config(sessions=sessions).config))
    row = row_of(path)
    recording = Recording.open(path)
    try:
        gaps, events = recording.gaps(), recording.events(limit=None if json else 10)
    finally:
        recording.close()
    runs = [run_row(directory) for directory in run_directories(path)]
    if json:
        whole: dict[str, Any] = msgspec.to_builtins(row)
        print_json({**whole, "gaps": [gap._asdict() for gap in gaps], "events": events, "runs": runs})
    else:
        put("\n".join(show_lines(row, gaps, events, runs)))
    return ExitCode.OK


@app.command("verify")
def verify_(name: Name = "last", json: Json = False, sessions: SessionsOption = None) -> int:
    """Verify a session: event chain, block checksums. Exit code 6 if it was changed."""
    path = resolve(name, sessions_directory(load_config(sessions=sessions).config))
    found = verify(path)
    if json:
        print_json({"session": path.name, **msgspec.to_builtins(found)})
    else:
        put("\n".join(verify_lines(path.name, found)))
    return ExitCode.OK if found.ok else ExitCode.SESSION


@app.command("pin")
def pin_(name: Name, sessions: SessionsOption = None) -> int:
    """Pin a session: retention never removes it."""
    return _pin(name, sessions, pinned=True)


@app.command("unpin")
def unpin(name: Name, sessions: SessionsOption = None) -> int:
    """Unpin a session: retention may remove it again."""
    return _pin(name, sessions, pinned=False)


def _pin(name: str, sessions: str | None, *, pinned: bool) -> int:
    path = resolve(name, sessions_directory(load_config(sessions=sessions).config), to_change=True)
    pin(path, pinned)
    put(f"{'pinned' if pinned else 'unpinned'} {path.name}")
    return ExitCode.OK


@app.command("prune")
def prune_(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    sessions: SessionsOption = None,
) -> int:
    """Apply retention now: recording.keep and recording.max_size. Pinned and live sessions stay."""
    loaded = load_config(sessions=sessions)
    directory = sessions_directory(loaded.config)
    require_readable(directory)
    keep_s, max_bytes = parse_duration(loaded.config.recording.keep), parse_size(loaded.config.recording.max_size)
    now_us = time.time_ns() // 1000
    if dry_run:
        return _print_pruned(
            candidates(directory, keep_s=keep_s, max_bytes=max_bytes, now_us=now_us), [], "would remove"
        )
    done = prune(directory, keep_s=keep_s, max_bytes=max_bytes, now_us=now_us)
    return _print_pruned(done.removed, done.failed, "removed")


def _print_pruned(removed: list[Candidate], failed: list[str], verb: str) -> int:
    for one in removed:
        put(f"{verb} {one.path.name}: {one.reason}")
    if not removed and not failed:
        put("nothing to remove")
    for text in failed:
        print_diagnostic(f"error: {text}")
    return ExitCode.SESSION if failed else ExitCode.OK


@app.command("report")
def report(
    name: Annotated[str | None, typer.Argument(metavar="SESSION", help="A session of the server to report on.")] = None,
    dumps: Annotated[bool, typer.Option("--dumps", help="Every known dump and restore of the server.")] = False,
    target: Annotated[
        str | None, typer.Option("--target", metavar="DSN", help="The target: connection string or name.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="Time a job may take, as 8h; default: configured.")
    ] = None,
    json: Json = False,
    sessions: SessionsOption = None,
) -> int:
    """Report dumps and restores (--dumps): durations, phases, trend.

    The trend shows when a job will exceed its time window.
    """
    if not dumps:
        raise Unsupported(
            "session report requires --dumps", hint="`dba-console report postmortem SESSION` reports an incident"
        )
    if name is not None and target is not None:
        raise UsageError("a session and --target both name a target", hint="give only one of them")
    loaded = load_config(sessions=sessions)
    windows = windows_of(loaded.config.jobs, check_window(window))
    address: Address | None = None
    recorded = None if target is None else _newest_session(target, loaded)
    if recorded is not None:
        key, title = _session_target(recorded)
    elif name is None:
        resolved = resolve_target(target, loaded)
        key, title, address = resolved.key, resolved.name, address_of(resolved.conninfo)
    else:
        key, title = _session_target(resolve(name, sessions_directory(loaded.config)))
    return report_dumps(key, title, windows, address=address, json=json, width=_report_width())


def _newest_session(target: str, loaded: LoadedConfig) -> Path | None:
    """Return the newest session of a target named as the screens name it, not as the configuration does."""
    if looks_like_conninfo(target) or target in loaded.config.targets:
        return None
    rows = list_sessions(sessions_directory(loaded.config))
    return next((Path(row.path) for row in reversed(rows) if row.target == target), None)


def _report_width() -> int:
    """Return the terminal's columns; without a terminal, enough for every column of the tables."""
    return max(80, shutil.get_terminal_size((160, 24)).columns)


def _session_target(path: Path) -> tuple[str, str]:
    """Return key and name of the target of a session."""
    recording = Recording.open(path)
    try:
        if recording.meta is None:
            raise SessionError(f"{path.name} does not record its target", hint="name it: --target DSN")
        return recording.meta.target_key, recording.meta.target
    finally:
        recording.close()


app.command("export")(export)
app.command("share")(share)
