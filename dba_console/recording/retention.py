"""Retention: remove old sessions by age and size. Never removes a pinned session, one that is being written, one with
an unfinished run, or other files.

A session is a directory of this user with the name of a session and only our files. A directory with any other file
stays.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from msgspec import Struct

from dba_console.core.errors import SessionError
from dba_console.recording.layout import (
    DATABASE,
    LOCK,
    SAMPLES,
    SessionLock,
    is_live,
    is_ours,
    parse_name,
    session_directories,
)
from dba_console.recording.run_paths import is_open, run_directories
from dba_console.recording.run_reader import is_finished
from dba_console.recording.session_lookup import is_pinned, size_of


class Candidate(Struct, frozen=True):
    """A session to remove, and why."""

    path: Path
    bytes: int
    reason: str


class Pruned(Struct, frozen=True):
    """Sessions that were removed, and those that could not be."""

    removed: list[Candidate]
    failed: list[str]


def candidates(sessions: Path, *, keep_s: float | None, max_bytes: int | None, now_us: int) -> list[Candidate]:
    """Return the sessions to remove, oldest first: those that ended more than `keep_s` ago, then the oldest until the
    total is at most `max_bytes`. None: no limit. Sessions that are always kept count in the total.
    """
    every = [(path, size_of(path)) for path in session_directories(sessions) if is_ours(path)]
    total = sum(size for _, size in every)
    free = [(path, size) for path, size in every if not is_pinned(path) and not _is_wanted(path)]
    chosen: list[Candidate] = []
    for path, size in free:
        if keep_s is not None and now_us - _ended_us(path) > keep_s * 1e6:
            chosen.append(Candidate(path, size, "older than the maximum age"))
        elif max_bytes is not None and total > max_bytes:
            chosen.append(Candidate(path, size, "all sessions exceed the maximum size"))
        else:
            continue
        total -= size
    return chosen


def prune(sessions: Path, *, keep_s: float | None, max_bytes: int | None, now_us: int) -> Pruned:
    """Remove the sessions of `candidates`."""
    removed: list[Candidate] = []
    failed: list[str] = []
    for candidate in candidates(sessions, keep_s=keep_s, max_bytes=max_bytes, now_us=now_us):
        try:
            remove(candidate.path)
            removed.append(candidate)
        except SessionError as error:
            failed.append(error.message)
    return Pruned(removed, failed)


def remove(directory: Path) -> None:
    """Remove one session. Raises SessionError if it is pinned, being written, has an unfinished run, is not a session,
    or cannot be removed.

    The database is removed last, so that the rest after a crash is still recognised as a session.
    """
    if not is_ours(directory):
        raise SessionError(f"not removed: {directory} is not a session, or contains other files")
    if is_pinned(directory):
        raise SessionError(f"not removed: {directory.name} is pinned", hint="unpin it first")
    if (run := unfinished_run(directory)) is not None:
        raise SessionError(
            f"not removed: the run {run.name} in {directory.name} is unfinished",
            hint=f"`dba-console runbook resume {run.name}` continues or ends it",
        )
    lock = SessionLock(directory)
    try:
        for entry in os.listdir(directory):
            path = directory / entry
            if entry in (DATABASE, LOCK):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (directory / LOCK).unlink(missing_ok=True)
        (directory / DATABASE).unlink()
        directory.rmdir()
    except OSError as error:
        raise SessionError(f"cannot remove {directory}: {error.strerror}") from error
    finally:
        lock.release()


def unfinished_run(directory: Path) -> Path | None:
    """Return an unfinished run of this session, or one that an agent has open; None if there is none."""
    return next((run for run in run_directories(directory) if is_open(run) or not is_finished(run)), None)


def _is_wanted(directory: Path) -> bool:
    return is_live(directory) or unfinished_run(directory) is not None


def _ended_us(directory: Path) -> int:
    """Return when it was last written, or its start if that cannot be read."""
    try:
        files = [path for path in (directory / DATABASE, directory / SAMPLES) if path.exists()]
        return max(os.lstat(path).st_mtime_ns // 1000 for path in files)
    except (OSError, ValueError):
        name = parse_name(directory.name)
        return 0 if name is None else name.start_us
