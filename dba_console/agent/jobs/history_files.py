"""The files of job histories: 0600 in the state directory, replaced whole, never trusted.

There is one for each target, written by its agent alone. What those of other targets of the same server hold is joined
when it is read: `gathering`. All functions wait for the disk: they are called in a lane.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from dba_console import paths
from dba_console.agent.jobs.job_history import KeptHistory
from dba_console.decoding import from_json
from dba_console.errors import ConsoleError

SIZE_LIMIT = 16 << 20
"""Sixty runs of two hundred jobs, each with all that can be known of it, are half of this."""
MAX_TARGETS = 100
"""Files kept: servers that come and go, as those of a demo do, leave no more than this behind."""


class DamagedHistory(Exception):
    """The file could not be read as a history; the text says why and where it was put."""


def history_path(target_key: str) -> Path:
    """Where the history of a target lies."""
    return paths.state_dir() / "jobs" / f"{target_key}.json"


def load_or_set_aside(path: Path) -> KeptHistory | None:
    """The history, None where there is none yet.

    Raises Damaged for a file that is no history, which is put aside under `.damaged`; OSError where it cannot be read.
    """
    found = _content(path)
    if found is None:
        return None
    inode, content = found
    try:
        return _decoded(content)
    except DamagedHistory as error:
        aside = path.with_suffix(".damaged")
        if os.lstat(path).st_ino == inode:  # not a newer one, where this read took long
            os.replace(path, aside)
        raise DamagedHistory(f"{path} is no history of jobs ({error}); it is kept as {aside.name}") from None


def read_history(path: Path) -> KeptHistory | None:
    """The same for who only looks: a damaged file stays where it is. Raises Damaged, OSError."""
    found = _content(path)
    try:
        return None if found is None else _decoded(found[1])
    except DamagedHistory as error:
        raise DamagedHistory(f"{path} is no history of jobs: {error}") from None


def _content(path: Path) -> tuple[int, bytes] | None:
    """Its inode and what is in it; None where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        return os.fstat(descriptor).st_ino, file.read(SIZE_LIMIT + 1)


def _decoded(content: bytes) -> KeptHistory:
    if len(content) > SIZE_LIMIT:
        raise DamagedHistory(f"it is larger than {SIZE_LIMIT >> 20} MB")
    try:
        return from_json(content, KeptHistory)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedHistory(str(error)) from None


def save_history(path: Path, history: KeptHistory) -> None:
    """Replace the file. Raises OSError or ConsoleError; the file is then as it was."""
    paths.private_dir(paths.private_dir(path.parent.parent) / path.parent.name)
    if not path.exists():
        _remove_oldest(path.parent)
    from dba_console.keeping.atomic_files import write_atomically  # not needed where nothing is written

    write_atomically(str(path.parent), path.name, msgspec.json.encode(history))


def _remove_oldest(directory: Path) -> None:
    """Remove files written longest ago, where there are too many; an agent at work writes its own again and again."""
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: max(0, len(files) - MAX_TARGETS + 1)]:
        file.unlink()


FAILURES = (OSError, ConsoleError, DamagedHistory)
"""What both may raise."""
