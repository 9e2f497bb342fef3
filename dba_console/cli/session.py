"""`dba-console session`: what was recorded. Nothing is changed but the pin, and what `prune` removes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dba_console.cli.config_file import LoadedConfig, load_config, sessions_directory
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, SessionsOption, new_app
from dba_console.cli.session_dump_report import check_window, report_dumps
from dba_console.cli.session_text import LIST_HEAD, LIST_RIGHT, list_row, show_lines, verify_lines
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.cli.target_resolution import resolve_target
from dba_console.errors import ExitCode, SessionError, Unsupported, UsageError
from dba_console.frames.window_forecast import windows_of
from dba_console.session.layout import require_readable
from dba_console.session.listing import list_sessions, pin, row_of
from dba_console.session.recording import Recording
from dba_console.session.resolve import resolve
from dba_console.session.retention import Candidate, candidates, prune
from dba_console.session.run_listing import row_of as run_row
from dba_console.session.run_paths import run_directories
from dba_console.session.verify import verify
from dba_console.target import Address, address_of, looks_like_conninfo
from dba_console.units import parse_duration, parse_size

app = new_app("What was recorded: list, show, report, verify, pin, unpin, prune.")

Name = Annotated[str, typer.Argument(metavar="SESSION", help="A directory, an id or its unique beginning, or last.")]


@app.command("list")
def list_(json: Json = False, sessions: SessionsOption = None) -> int:
    """Every session, newest first."""
    directory = sessions_directory(_load_config(sessions).config)
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
    """One session: when, what, how much, its gaps and its last events."""
    path = resolve(name, sessions_directory(_load_config(sessions).config))
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
    """Is it what was written: the chain of events, the checksum of every block. Exit code 6 where it is not."""
    path = resolve(name, sessions_directory(_load_config(sessions).config))
    found = verify(path)
    if json:
        print_json({"session": path.name, **msgspec.to_builtins(found)})
    else:
        put("\n".join(verify_lines(path.name, found)))
    return ExitCode.OK if found.ok else ExitCode.SESSION


@app.command("pin")
def pin_(name: Name, sessions: SessionsOption = None) -> int:
    """Keep a session: retention never removes it."""
    return _pin(name, sessions, pinned=True)


@app.command("unpin")
def unpin(name: Name, sessions: SessionsOption = None) -> int:
    """Let retention remove a session again when its time comes."""
    return _pin(name, sessions, pinned=False)


def _pin(name: str, sessions: str | None, *, pinned: bool) -> int:
    path = resolve(name, sessions_directory(_load_config(sessions).config))
    pin(path, pinned)
    put(f"{'pinned' if pinned else 'unpinned'} {path.name}")
    return ExitCode.OK


@app.command("prune")
def prune_(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    sessions: SessionsOption = None,
) -> int:
    """Apply retention now: recording.keep and recording.max_size. Pinned and live sessions stay."""
    loaded = _load_config(sessions)
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
    name: Annotated[str | None, typer.Argument(metavar="SESSION", help="The session whose server is meant.")] = None,
    dumps: Annotated[bool, typer.Option("--dumps", help="Every dump and restore known on the server.")] = False,
    target: Annotated[
        str | None, typer.Option("--target", metavar="DSN", help="The target that is meant: connection string or name.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="How long a job may take, as 8h; else as configured.")
    ] = None,
    json: Json = False,
    sessions: SessionsOption = None,
) -> int:
    """With --dumps: durations, phases and trend of dumps and restores, and when they outgrow their window."""
    if not dumps:
        raise Unsupported(
            "session report needs --dumps: a report of a whole session is not part of this version",
            hint="session show and session.log have the events of a session",
        )
    if name is not None and target is not None:
        raise UsageError("a session and --target both name a target", hint="give one of them")
    loaded = _load_config(sessions)
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
    """The newest session of a target that is called as the screens call it, and not as the configuration does."""
    if looks_like_conninfo(target) or target in loaded.config.targets:
        return None
    rows = list_sessions(sessions_directory(loaded.config))
    return next((Path(row.path) for row in reversed(rows) if row.target == target), None)


def _report_width() -> int:
    """Columns of the terminal; where there is none, room for every column of the tables."""
    return max(80, shutil.get_terminal_size((160, 24)).columns)


def _session_target(path: Path) -> tuple[str, str]:
    """Key and name of the target a session is of."""
    recording = Recording.open(path)
    try:
        if recording.meta is None:
            raise SessionError(f"{path.name} does not say what it is a recording of", hint="name it: --target DSN")
        return recording.meta.target_key, recording.meta.target
    finally:
        recording.close()


@app.command("export", hidden=True)
def export(name: Name = "last") -> int:
    """Kept for a later version."""
    raise Unsupported(
        "session export is not part of this version",
        hint="dba-console replay SESSION --json --for TIME gives every tick as JSON; session.db opens in sqlite3",
    )


def _load_config(sessions: str | None) -> LoadedConfig:
    loaded = load_config()
    if sessions is None:
        return loaded
    return loaded.with_option(("recording", "directory"), sessions, "--sessions")
