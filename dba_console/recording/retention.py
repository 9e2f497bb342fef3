"""Old sessions go, by age and by bytes. Never a pinned one, never one being written or with a run that came to no end
in it, never anything that is not ours.

What counts as ours: a directory of this user, named as we name sessions, holding nothing but our files. A directory
somebody put a file of their own into stays.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from msgspec import Struct

from dba_console.core.errors import SessionError
from dba_console.recording.layout import DATABASE, LOCK, SessionLock, is_live, is_ours, parse_name, session_directories
from dba_console.recording.listing import is_pinned, size_of
from dba_console.recording.run_paths import is_open, run_directories
from dba_console.recording.run_reader import is_finished


class Candidate(Struct, frozen=True):
    """A session and why it would go."""

    path: Path
    bytes: int
    reason: str


class Pruned(Struct, frozen=True):
    """What was removed, and what could not be."""

    removed: list[Candidate]
    failed: list[str]


def candidates(sessions: Path, *, keep_s: float | None, max_bytes: int | None, now_us: int) -> list[Candidate]:
    """Sessions that would go, oldest first: ended longer than `keep_s` ago, then the oldest while all together take
    more than `max_bytes`. None sets no bound. Those that stay whatever comes count towards the bytes.
    """
    every = [(path, size_of(path)) for path in session_directories(sessions) if is_ours(path)]
    total = sum(size for _, size in every)
    free = [(path, size) for path, size in every if not is_pinned(path) and not _is_wanted(path)]
    chosen: list[Candidate] = []
    for path, size in free:
        if keep_s is not None and now_us - _ended_us(path) > keep_s * 1e6:
            chosen.append(Candidate(path, size, "older than the age to keep"))
        elif max_bytes is not None and total > max_bytes:
            chosen.append(Candidate(path, size, "all sessions together are larger than allowed"))
        else:
            continue
        total -= size
    return chosen


def prune(sessions: Path, *, keep_s: float | None, max_bytes: int | None, now_us: int) -> Pruned:
    """Remove what `candidates` names."""
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
    """Remove one session. Raises SessionError where it is pinned, being written, holds a run that came to no end, is
    not ours, or cannot be removed.

    The database goes last, so that what a crash leaves behind is still known as ours.
    """
    if not is_ours(directory):
        raise SessionError(f"not removed: {directory} is not a session, or holds files that are not ours")
    if is_pinned(directory):
        raise SessionError(f"not removed: {directory.name} is pinned", hint="unpin it first")
    if (run := unfinished_run(directory)) is not None:
        raise SessionError(
            f"not removed: the run {run.name} in {directory.name} came to no end",
            hint=f"`dba-console runbook resume {run.name}` goes on with it, or ends it",
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
    """A run of this session that came to no end, or that an agent has open; None where there is none."""
    return next((run for run in run_directories(directory) if is_open(run) or not is_finished(run)), None)


def _is_wanted(directory: Path) -> bool:
    return is_live(directory) or unfinished_run(directory) is not None


def _ended_us(directory: Path) -> int:
    """When it was last written to; its start where that cannot be read."""
    try:
        return os.lstat(directory / DATABASE).st_mtime_ns // 1000
    except OSError:
        name = parse_name(directory.name)
        return 0 if name is None else name.start_us
