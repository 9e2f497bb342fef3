"""How a session.db is opened to read: what it is is checked first, then the gentlest way that works is taken.

A live session is read beside its writer. Where the directory cannot be written (another's, a read-only mount), SQLite
cannot make its shared memory: a closed session is then read as it lies, one with a log is copied aside first.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import struct
import tempfile
from pathlib import Path
from urllib.parse import quote

from dba_console.errors import SessionError
from dba_console.session.damage import Damaged
from dba_console.session.layout import APPLICATION_ID, DATABASE, SQLITE_MAGIC
from dba_console.session.liveness import is_live
from dba_console.session.meta import FORMAT
from dba_console.session.schema import TABLES

_COPY_LIMIT = 1 << 30


def check_header(directory: Path) -> str | None:
    """What is wrong with the file as a whole, None where nothing is seen.

    Raises SessionError where it is no recording at all, or one this program does not know how to read.
    """
    path = directory / DATABASE
    for sibling in ("-wal", "-shm", "-journal"):
        _require_file(Path(f"{path}{sibling}"))
    try:
        # A pipe would be waited for without end, a device may do anything when it is opened or read.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SessionError(f"{path} is not a regular file, so it is not a recording")
            header = file.read(100)
            size = os.fstat(descriptor).st_size
    except FileNotFoundError:
        raise SessionError(
            f"no recording in {directory}: session.db is missing", hint="`dba-console session list` shows what there is"
        ) from None
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror}") from error
    if size == 0:
        raise SessionError(f"the recording {directory.name} is empty: nothing was ever written to it")
    if len(header) < 100 or not header.startswith(SQLITE_MAGIC):
        return "its beginning is damaged"
    page_size, pages = struct.unpack_from(">H", header, 16)[0], struct.unpack_from(">I", header, 28)[0]
    version, application = struct.unpack_from(">I", header, 60)[0], struct.unpack_from(">I", header, 68)[0]
    if application != APPLICATION_ID:
        raise SessionError(f"{path} is an SQLite database, but not a recording of this program")
    if version > FORMAT:
        raise SessionError(
            f"the recording {directory.name} has format {version}; this program reads up to {FORMAT}",
            hint="read it with the version of dba-console that wrote it, or a newer one",
        )
    whole = pages * (65536 if page_size == 1 else page_size)
    if size < whole and not os.path.exists(f"{path}-wal") and not is_live(directory):
        return f"it is cut short: {size} of {whole} bytes are there"
    return None


def _require_file(path: Path) -> None:
    """Raises SessionError where something else than a file lies there, which SQLite would open."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise SessionError(f"{path} is not a regular file, so what lies beside it is not a recording")


def connect(directory: Path) -> tuple[sqlite3.Connection, tempfile.TemporaryDirectory[str] | None]:
    """A read-only connection, and the directory of a copy where one had to be made. Raises Damaged."""
    path = directory / DATABASE
    try:
        return _try(f"file:{quote(str(path))}?mode=ro"), None
    except sqlite3.OperationalError as error:
        if "malformed" in str(error) or "locked" in str(error):
            raise Damaged(f"session.db cannot be read: {error}") from error
    except sqlite3.Error as error:
        raise Damaged(f"session.db cannot be read: {error}") from error
    try:
        return _connect_to_copy(path)
    except (sqlite3.Error, OSError) as error:
        raise Damaged(f"session.db cannot be read: {error}") from error


def _connect_to_copy(path: Path) -> tuple[sqlite3.Connection, tempfile.TemporaryDirectory[str] | None]:
    log = Path(f"{path}-wal")
    if not log.exists() or log.stat().st_size == 0 or path.stat().st_size > _COPY_LIMIT:
        return _try(f"file:{quote(str(path))}?mode=ro&immutable=1"), None
    copy_directory = tempfile.TemporaryDirectory(prefix="dba-console-")
    for piece in (path, log):
        shutil.copyfile(piece, Path(copy_directory.name) / piece.name)
    return _try(f"file:{quote(copy_directory.name)}/{DATABASE}"), copy_directory


def _try(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{uri}", uri=True, isolation_level=None, timeout=1.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only=1")
        connection.execute("PRAGMA cache_size=-1000")
        _require_tables(connection)
        connection.execute("SELECT count(*) FROM meta").fetchone()
    except (sqlite3.Error, SessionError):
        connection.close()
        raise
    except UnicodeDecodeError as error:  # a message that quotes the damaged schema
        connection.close()
        raise sqlite3.DatabaseError("its schema is damaged") from error
    return connection


def _require_tables(connection: sqlite3.Connection) -> None:
    """Raises SessionError where a table of ours is a view, a virtual table or has computed columns: reading it would
    run what somebody else wrote, and that may have no end."""
    # SQLite tells no upper from lower case in names, and makes of a row of its schema what the SQL in it says.
    ours = f"SELECT name, substr(sql, 1, 40) FROM sqlite_master WHERE lower(name) IN ({', '.join('?' * len(TABLES))})"
    for name, sql in connection.execute(ours, sorted(TABLES)).fetchall():
        plain = name in TABLES and str(sql).lower().split()[:2] == ["create", "table"]
        if not plain or any(row[6] for row in connection.execute(f"PRAGMA table_xinfo({name})")):
            raise SessionError(f"this is not a recording that this program wrote: {name} in it is not a plain table")
