"""Names inside a sessions directory, and how a directory is known to be one of ours.

<sessions>/<UTC start>-<host>-<id>/session.db  session.log  session.lock  pinned  out/  runs/
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import PermissionDenied, SessionError
from dba_console.core.redact import redact

# What a session says of itself: written once at the start, never a secret in it.

FORMAT = 1
"""Version of the session format. A reader refuses a newer one; fields and tables may be added without raising it."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class SessionMeta(Struct, frozen=True, kw_only=True):
    """One run of an agent on one target. A run never appends to another's session; it says which one it continues."""

    id: str
    target: str
    """Name people read; no connection string."""
    target_key: str
    host: str
    """Host the agent ran on: the name in `session.log`."""
    program_version: str
    boot_id: str = ""
    """The kernel's, so that monotonic times of two boots are never compared."""
    run: str = ""
    """`boot` of the samples: this run of the agent."""
    start_wall_us: int
    start_mono_us: int
    interval_us: int = 1_000_000
    continues: str | None = None
    """Id of the session of the same target that ended without being closed."""
    format: int = FORMAT


def new_meta(
    *,
    target: str,
    target_key: str,
    host: str,
    program_version: str,
    run: str = "",
    interval_us: int = 1_000_000,
    continues: str | None = None,
    clock: Clock = SYSTEM,
) -> SessionMeta:
    """The meta of a session that begins now."""
    return SessionMeta(
        id=secrets.token_hex(4),
        target=redact(target),
        target_key=target_key,
        host=host_word(host),
        program_version=program_version,
        boot_id=_boot_id(),
        run=run,
        start_wall_us=clock.wall_us(),
        start_mono_us=clock.mono_us(),
        interval_us=interval_us,
        continues=continues,
    )


def host_word(host: str) -> str:
    """The host as one word for names and log lines: cut at the first dot, nothing but letters, digits, `-` and `_`.

    >>> host_word("db2.example.org"), host_word("../x y"), host_word("")
    ('db2', 'x-y', 'localhost')
    """
    first = host.strip("./ ").split(".", 1)[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")[:63] or "localhost"


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


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


# Whether a session is being written: a lock held by its writer, never a column that a crash leaves behind.


class SessionLock:
    """An exclusive flock(2) on `session.lock`; the kernel lets go of it when its holder dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError where another process holds it or it cannot be made."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(directory / LOCK, flags, 0o600)
        except OSError as error:
            raise SessionError(f"cannot lock the session {directory.name}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise SessionError(f"another process writes the session {directory.name}") from error

    def release(self) -> None:
        """Let go. Calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_live(directory: Path) -> bool:
    """True while a process holds the session's lock."""
    return is_held(directory / LOCK)


def is_held(lock: Path) -> bool:
    """True while a process holds this lock exclusively; False where there is no such file."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
