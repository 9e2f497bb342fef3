"""Names inside a sessions directory, and how a directory is known to be one of ours.

<sessions>/<UTC start>-<host>-<id>/session.db  session.log  session.lock  pinned  out/  runs/
"""

from __future__ import annotations

import os
import re
import stat
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from dba_console.errors import PermissionDenied
from dba_console.session.meta import SessionMeta

DATABASE = "session.db"
LOG = "session.log"
LOCK = "session.lock"
PINNED = "pinned"

APPLICATION_ID = 0x44424143
"""`DBAC` in the header of session.db (PRAGMA application_id): what tells it from any other SQLite file."""

SQLITE_MAGIC = b"SQLite format 3\x00"
_APPLICATION_ID_AT = 68
"""Offset in the database header (SQLite file format, section 1.3)."""

_NAME = re.compile(r"(\d{8}T\d{6}Z)-([A-Za-z0-9_-]{1,63})-([0-9a-f]{8})")
_OURS = {DATABASE, DATABASE + "-wal", DATABASE + "-shm", DATABASE + "-journal", LOG, LOCK, PINNED, "out", "runs"}


class SessionName(NamedTuple):
    """The three parts of a session directory's name."""

    start_us: int
    host: str
    id: str


def directory_name(meta: SessionMeta) -> str:
    """`20261120T145307Z-db2-1a2b3c4d`."""
    start = datetime.fromtimestamp(meta.start_wall_us / 1e6, UTC)
    return f"{start:%Y%m%dT%H%M%SZ}-{meta.host}-{meta.id}"


def session_directory(sessions: Path, meta: SessionMeta) -> Path:
    """Where the session of `meta` lies."""
    return sessions / directory_name(meta)


def parse_name(name: str) -> SessionName | None:
    """The parts of a directory name, None where it is not one of ours.

    >>> parse_name("20261120T145307Z-db2-1a2b3c4d").host, parse_name("home")
    ('db2', None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        start = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return SessionName(int(start.timestamp()) * 1_000_000, match[2], match[3])


def has_our_header(database: Path) -> bool:
    """True where the file begins as a session.db does. Reads 100 bytes, follows no link, opens no database."""
    try:
        descriptor = os.open(database, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        header = os.read(descriptor, 100)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    if len(header) < 100 or not header.startswith(SQLITE_MAGIC):
        return False
    return bool(struct.unpack_from(">I", header, _APPLICATION_ID_AT)[0] == APPLICATION_ID)


def is_ours(directory: Path) -> bool:
    """True for a session by name and content: a real directory of this user that holds only what we put there."""
    try:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or parse_name(directory.name) is None:
            return False
        if not set(os.listdir(directory)) <= _OURS:
            return False
    except OSError:
        return False
    return has_our_header(directory / DATABASE)


def require_readable(sessions: Path) -> None:
    """Raises PermissionDenied where this user may not look into the directory; one that is not there passes."""
    try:
        os.listdir(sessions)
        denied = not os.access(sessions, os.X_OK)
    except PermissionError:
        denied = True
    except OSError:
        return
    if denied:
        raise PermissionDenied(f"{sessions} may not be read by this user", hint="whose sessions are they? sudo -u USER")


def session_directories(sessions: Path) -> list[Path]:
    """Directories named like sessions, oldest first. Empty where there is no such place."""
    try:
        names = os.listdir(sessions)
    except OSError:
        return []
    return [sessions / name for name in sorted(names) if parse_name(name) is not None]
