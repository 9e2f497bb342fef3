"""Layout of a sessions directory: names, metadata, locks, and recognition of session directories.

<sessions>/<UTC start>-<host>-<id>/session.db  session.samples  session.log  session.lock  pinned  out/  runs/
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec import MsgspecError, Struct

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.decoding import from_json
from dba_console.core.errors import PermissionDenied, SessionError
from dba_console.core.redact import redact
from dba_console.watch.probes.host.kernel_files import read_word

# Session metadata: written once at the start, without secrets.

FORMAT = 1
"""Version of the session format. A reader refuses a newer one; fields and tables may be added without raising it."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class SessionMeta(Struct, frozen=True, kw_only=True):
    """Metadata of a session: one run of an agent on one target. It is never appended to; the next continues it."""

    id: str
    target: str
    """Display name; not a connection string."""
    target_key: str
    host: str
    """Host the agent ran on: the name in `session.log`."""
    program_version: str
    boot_id: str = ""
    """Boot id of the kernel: monotonic times of two boots are not comparable."""
    run: str = ""
    """`boot` of the samples: this run of the agent."""
    start_wall_us: int
    start_mono_us: int
    interval_us: int = 1_000_000
    continues: str | None = None
    """Id of the previous session of the same target if it was not closed."""
    format: int = FORMAT
    redaction: str | None = None
    """Of a shared copy: a Redaction as JSON."""

    def redacted(self) -> Redaction | None:
        """Return how this copy was made; None for an original."""
        if self.redaction is None:
            return None
        try:
            return from_json(self.redaction, Redaction)
        except MsgspecError:
            return Redaction(level="unknown", program_version="", events=0, head=None, verified=False)


class Redaction(Struct, frozen=True, kw_only=True):
    """How a shared copy was made from its original."""

    level: str
    """secrets, names or all."""
    program_version: str
    events: int
    """Events of the original."""
    head: str | None
    """Hash of its newest event."""
    verified: bool
    """The original matched its hash chain."""


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
    """Return the metadata of a session that starts now."""
    return SessionMeta(
        id=secrets.token_hex(4),
        target=redact(target),
        target_key=target_key,
        host=host_word(host),
        program_version=program_version,
        boot_id=read_word(_BOOT_ID) or "",
        run=run,
        start_wall_us=clock.wall_us(),
        start_mono_us=clock.mono_us(),
        interval_us=interval_us,
        continues=continues,
    )


def host_word(host: str) -> str:
    """Return the host as one word for names and log lines: up to the first dot, only letters, digits, `-` and `_`.

    >>> host_word("db2.example.org"), host_word("../x y"), host_word("")
    ('db2', 'x-y', 'localhost')
    """
    first = host.strip("./ ").split(".", 1)[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", first).strip("-")[:63] or "localhost"


DATABASE = "session.db"
SAMPLES = "session.samples"
LOG = "session.log"
LOCK = "session.lock"
PINNED = "pinned"

APPLICATION_ID = 0x44424143
"""`DBAC` in the header of session.db (PRAGMA application_id), which identifies it."""

SQLITE_MAGIC = b"SQLite format 3\x00"
_APPLICATION_ID_AT = 68
"""Offset in the database header (SQLite file format, section 1.3)."""

_NAME = re.compile(r"(\d{8}T\d{6}Z)-([A-Za-z0-9_-]{1,63})-([0-9a-f]{8})")
_OURS = {
    DATABASE,
    SAMPLES,
    DATABASE + "-wal",
    DATABASE + "-shm",
    DATABASE + "-journal",
    LOG,
    LOCK,
    PINNED,
    "out",
    "runs",
}


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
    """Return the directory of the session of `meta`."""
    return sessions / directory_name(meta)


def parse_name(name: str) -> SessionName | None:
    """Return the parts of a directory name, None if it is not that of a session.

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
    """Return whether the file has the header of a session.db. Reads 100 bytes, follows no link, opens no database."""
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
    """Return whether it is a session by name and content: a directory of this user with only our files."""
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
    """Raise PermissionDenied if this user cannot read the directory; a missing directory is accepted."""
    try:
        os.listdir(sessions)
        denied = not os.access(sessions, os.X_OK)
    except PermissionError:
        denied = True
    except OSError:
        return
    if denied:
        raise PermissionDenied(f"cannot read {sessions}: permission denied", hint="run it as the owner: sudo -u USER")


def session_directories(sessions: Path) -> list[Path]:
    """Return the directories with names of sessions, oldest first. Empty if the directory does not exist."""
    try:
        names = os.listdir(sessions)
    except OSError:
        return []
    return [sessions / name for name in sorted(names) if parse_name(name) is not None]


def require_one(found: Sequence[Path], name: str, what: str) -> Path:
    """Return the only path found by a name; `what`: sessions or runs. Raises SessionError if it matches several."""
    if len(found) == 1:
        return found[0]
    listed = ", ".join(path.name for path in found[:8]) + (", …" if len(found) > 8 else "")
    raise SessionError(f"{name!r} matches {len(found)} {what}: {listed}", hint="type more of the id")


# A session is being written while its writer holds a lock; a column would remain after a crash.


class FileLock:
    """An exclusive flock(2) on an open file; the kernel releases it when its holder dies."""

    def __init__(self, descriptor: int, taken: str, hint: str | None = None) -> None:
        """Raises SessionError with the text `taken` if another process holds it; the file is then closed."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise SessionError(taken, hint=hint) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. Calling it again does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # the kernel has released it anyway
                os.close(descriptor)


class SessionLock(FileLock):
    """The lock of a session: `session.lock`."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError if another process holds it or it cannot be created."""
        try:
            descriptor = _open_lock(directory)
        except OSError as error:
            raise SessionError(f"cannot lock the session {directory.name}: {error.strerror}") from error
        super().__init__(descriptor, f"another process writes the session {directory.name}")


def _open_lock(directory: Path) -> int:
    """Open the lock of a session, created for the owner of the directory: root adds notes to sessions of others, who
    could not open a lock of root. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(directory / LOCK, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(directory / LOCK, flags | os.O_CREAT, 0o600)
    if os.geteuid() == 0:
        owner = os.stat(directory)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def is_live(directory: Path) -> bool:
    """Return whether a process holds the session's lock."""
    return is_held(directory / LOCK)


def is_held(lock: Path) -> bool:
    """Return whether a process holds this lock exclusively; False if the file does not exist."""
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
