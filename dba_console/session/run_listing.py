"""What runs there are in all sessions, and which one a word means."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from dba_console.errors import SessionError
from dba_console.session.layout import require_readable, session_directories
from dba_console.session.run_paths import DOCUMENT, RUNS, parse_run_id, run_directories
from dba_console.session.run_reader import StoredRun, read_run
from dba_console.session.run_records import STARTED, RunAbout

_HINT = "`dba-console runbook runs` shows what there is"


class RunRow(Struct, frozen=True, kw_only=True):
    """A line of `runbook runs`. Times in microseconds since 1970; None is unknown."""

    run: str
    path: str
    about: RunAbout | None
    state: str
    """running (an agent has it open), interrupted (unfinished, and none has), done, failed, aborted, unreadable."""
    began_us: int | None = None
    """When its start was confirmed, as its story has it; before that, when it was prepared."""
    ended_us: int | None = None
    ending: str = ""
    records: int = 0
    note: str | None = None
    """What is wrong with it, where something is."""


def list_runs(sessions: Path) -> list[RunRow]:
    """Every run of every session, oldest first."""
    return [row_of(directory) for directory in all_run_directories(sessions)]


def all_run_directories(sessions: Path) -> list[Path]:
    """The directories of all runs, oldest first."""
    found = [run for session in session_directories(sessions) for run in run_directories(session)]
    return sorted(found, key=_began)


def _began(directory: Path) -> tuple[str, int, str]:
    """For sorting: its name says the second; of those of one second, the file that is written first and never again
    tells which was earlier.
    """
    name = parse_run_id(directory.name)
    try:
        written_ns = os.lstat(directory / DOCUMENT).st_mtime_ns
    except OSError:
        written_ns = 0
    return ("" if name is None else name.start, written_ns, directory.name)


def unfinished_runs(sessions: Path, target_key: str | None = None) -> list[StoredRun]:
    """Runs that came to no end and that no agent has open, oldest first; of one target where it is named.

    Those that are damaged are among them: they are told, though they cannot go on.
    """
    found = []
    for directory in all_run_directories(sessions):
        try:
            papers = read_run(directory)
        except SessionError:
            continue  # nothing is known of it, not even whose it was; `runbook runs` names it
        if papers.ended is None and not papers.live and target_key in (None, papers.about.target_key):
            found.append(papers)
    return found


def row_of(directory: Path) -> RunRow:
    """The line of one run."""
    try:
        return row_of_run(read_run(directory))
    except SessionError as error:
        return RunRow(run=directory.name, path=str(directory), about=None, state="unreadable", note=error.message)


def row_of_run(run: StoredRun) -> RunRow:
    """The line of a run that has been read."""
    ended = run.ended
    if ended is not None:
        state = ended.state or "done"
    else:
        state = "running" if run.live else "interrupted"
    return RunRow(
        run=run.directory.name,
        path=str(run.directory),
        about=run.about,
        state=state,
        began_us=_began_us(run),
        ended_us=None if ended is None else ended.wall_us,
        ending="" if ended is None else ended.text,
        records=len(run.records),
        note=run.damage or next(iter(run.notes), None),
    )


def _began_us(run: StoredRun) -> int:
    """When it was started; one that was not, when it was prepared."""
    return next((record.wall_us for record in run.records if record.kind == STARTED), run.records[0].wall_us)


def resolve_run(name: str, sessions: Path) -> Path:
    """The directory of a run named by its path, its id, the beginning or the four signs at the end of its id, or
    `last`.

    Raises SessionError where none or several are meant; PermissionDenied where `sessions` may not be read.
    """
    if not name:
        raise SessionError("no run named", hint=_HINT)
    named_path = Path(name).expanduser()
    if "/" in name:
        if parse_run_id(named_path.name) is not None and named_path.is_dir() and named_path.parent.name == RUNS:
            return named_path
        raise SessionError(f"no run in {named_path}", hint=_HINT)
    require_readable(sessions)
    every = all_run_directories(sessions)
    if name == "last":
        if not every:
            raise SessionError(f"no run in {sessions}", hint="`dba-console runbook run NAME` begins one")
        return every[-1]
    found = [path for path in every if path.name.startswith(name) or path.name.rpartition("-")[2] == name]
    exact = [path for path in found if path.name == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise SessionError(f"no run {name!r} in {sessions}", hint=_HINT)
    listed = ", ".join(path.name for path in found[:8]) + (", …" if len(found) > 8 else "")
    raise SessionError(f"{name!r} means {len(found)} runs: {listed}", hint="write more of the id")
