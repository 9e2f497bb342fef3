"""What sessions there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from msgspec import Struct

from dba_console.errors import SessionError
from dba_console.session.layout import DATABASE, PINNED, has_our_header, parse_name, session_directories
from dba_console.session.liveness import is_live
from dba_console.session.recording import Recording

State = Literal["live", "closed", "crashed", "unreadable"]


class ListedSession(Struct, frozen=True, kw_only=True):
    """A line of `session list`. Times in microseconds since 1970; None is unknown."""

    id: str
    path: str
    start_us: int
    end_us: int | None
    duration_s: float | None
    target: str | None
    host: str
    samples: int | None
    bytes: int
    state: State
    pinned: bool
    continues: str | None = None
    note: str | None = None
    """What is wrong with it, where something is."""


def list_sessions(sessions: Path) -> list[ListedSession]:
    """Every session in a sessions directory, oldest first. A damaged one is listed with what is known of it."""
    rows = [row_of(directory) for directory in session_directories(sessions) if _is_session(directory)]
    return sorted(rows, key=lambda row: (row.start_us, row.id))


def row_of(directory: Path) -> ListedSession:
    """The line of one session directory (its name must parse)."""
    name = parse_name(directory.name)
    if name is None:
        raise SessionError(f"{directory} is not named like a session")
    size, pinned = size_of(directory), is_pinned(directory)
    try:
        recording = Recording.open(directory)
    except SessionError as error:
        return ListedSession(
            id=name.id, path=str(directory), start_us=name.start_us, end_us=None, duration_s=None, target=None,
            host=name.host, samples=None, bytes=size, state="live" if is_live(directory) else "unreadable",
            pinned=pinned, note=error.message,
        )  # fmt: skip
    try:
        meta = recording.meta
        start_us, end_us = (name.start_us if meta is None else meta.start_wall_us), recording.last_us
        return ListedSession(
            id=name.id, path=str(directory), start_us=start_us, end_us=end_us,
            duration_s=max(0.0, (end_us - start_us) / 1e6), target=None if meta is None else meta.target,
            host=name.host, samples=recording.samples, bytes=size, state=recording.state, pinned=pinned,
            continues=None if meta is None else meta.continues, note=recording.damage,
        )  # fmt: skip
    finally:
        recording.close()


def size_of(directory: Path) -> int:
    """Bytes of all files below, as they are allocated on the disk."""
    total = 0
    for parent, _, files in os.walk(directory):
        for file in files:
            try:
                total += os.lstat(os.path.join(parent, file)).st_blocks * 512
            except OSError:
                continue  # gone meanwhile
    return total


def is_pinned(directory: Path) -> bool:
    return (directory / PINNED).exists()


def pin(directory: Path, pinned: bool = True) -> None:
    """Keep a session from being removed by retention, or let it go again. Raises SessionError."""
    try:
        if pinned:
            os.close(os.open(directory / PINNED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        else:
            (directory / PINNED).unlink(missing_ok=True)
    except OSError as error:
        raise SessionError(f"cannot {'pin' if pinned else 'unpin'} {directory.name}: {error.strerror}") from error


def continued_by(sessions: Path, target_key: str) -> str | None:
    """Id of the newest session of a target if it ended without being closed: what the next one continues."""
    for directory in reversed(session_directories(sessions)):
        if not _is_session(directory):
            continue
        try:
            recording = Recording.open(directory)
        except SessionError:
            continue
        try:
            if recording.meta is not None and recording.meta.target_key == target_key:
                return recording.meta.id if recording.state == "crashed" else None
        finally:
            recording.close()
    return None


def _is_session(directory: Path) -> bool:
    """Named like one and holding what a session holds: a damaged session.db still counts."""
    return has_our_header(directory / DATABASE) or (directory / "session.lock").exists()
