"""A recording, read: the picture at any moment, steps from one to the next, chart values, events, gaps.

Works on a session being written (`refresh` sees what was committed since), a closed one, one whose agent was killed,
and a damaged one as far as it can be read: `damage` then says what is wrong. Nothing but SessionError is raised.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import struct
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from urllib.parse import quote

from dba_console.core.errors import SessionError
from dba_console.recording.backlog import Gap
from dba_console.recording.block_format import Damaged
from dba_console.recording.damaged_file import FallbackSource, PageSource
from dba_console.recording.journal import event_of
from dba_console.recording.layout import APPLICATION_ID, DATABASE, FORMAT, SQLITE_MAGIC, SessionMeta, is_live
from dba_console.recording.points import Point, default_point_of, unpack_points
from dba_console.recording.source import Source, SqlSource, session_meta
from dba_console.recording.store import TABLES
from dba_console.recording.timeline import Timeline
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event

# How a session.db is opened to read: what it is is checked first, then the gentlest way that works is taken.
#
# A live session is read beside its writer. Where the directory cannot be written (another's, a read-only mount),
# SQLite cannot make its shared memory: a closed session is then read as it lies, one with a log is copied aside first.

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


class Recording:
    """Use `Recording.open`. For one thread at a time."""

    def __init__(self, directory: Path, stored: Source, copy_directory: TemporaryDirectory[str] | None = None) -> None:
        self.directory = directory
        self.stored = stored
        """What the session holds as it is stored, for checking and measuring."""
        self._source = FallbackSource(stored, lambda: PageSource(directory))
        self._aside = copy_directory
        self._damage: str | None = None
        self._values = stored.meta()
        self.meta: SessionMeta | None = session_meta(self._values)
        """None where too much of it is lost."""
        self._timeline = Timeline(self._source)
        self._point_of: Callable[[Picture], Point] | None = None
        self._timeline.refresh()

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Open a session directory (or its session.db). Raises SessionError saying what it is instead."""
        directory = Path(path)
        if directory.name == DATABASE:
            directory = directory.parent
        damage = check_header(directory)
        if damage is None:
            try:
                return cls._through_sqlite(directory)
            except Damaged as error:
                damage = error.message
        return cls._page_by_page(directory, damage)

    @classmethod
    def _through_sqlite(cls, directory: Path) -> Recording:
        connection, copy_directory = connect(directory)
        try:
            return cls(directory, SqlSource(connection), copy_directory)
        except Damaged:
            connection.close()
            if copy_directory is not None:
                copy_directory.cleanup()
            raise

    @classmethod
    def _page_by_page(cls, directory: Path, damage: str) -> Recording:
        source = PageSource(directory)
        if not source.found():
            source.close()
            raise SessionError(
                f"nothing can be read of the recording {directory.name}: {damage}",
                hint="session.log beside it may still have the events",
            )
        recording = cls(directory, source)
        events = len(source.journal(None, None, None))
        left = f"{recording.samples} samples, {events} events"
        recording._damage = f"the recording is damaged ({damage}); {left} can still be read"
        return recording

    @property
    def damage(self) -> str | None:
        """What is wrong with the files, in one sentence; None where nothing is known to be."""
        problem = self._damage or self._source.trouble or next(iter(self._timeline.row_errors), None)
        if problem is None or problem is self._damage:
            return problem
        return f"the recording is damaged in places ({problem}); the rest can be read"

    @property
    def samples(self) -> int:
        """Samples in the index, those of blocks found damaged later included."""
        return self._timeline.samples

    @property
    def first_us(self) -> int:
        """Wall time of the first sample; the start of the session where there is none."""
        first = self._timeline.first_us
        return self._start_us if first is None else first

    @property
    def last_us(self) -> int:
        """Wall time of the newest sample."""
        last = self._timeline.last_us
        return self._start_us if last is None else last

    @property
    def _start_us(self) -> int:
        return 0 if self.meta is None else self.meta.start_wall_us

    @property
    def state(self) -> Literal["live", "closed", "crashed"]:
        """crashed: its agent ended without closing it."""
        if is_live(self.directory):
            return "live"
        return "crashed" if self.closed is None else "closed"

    @property
    def closed(self) -> str | None:
        """The note its writer left on closing (JSON: reason, events, head), None where it was not closed."""
        return self._values.get("closed")

    def refresh(self) -> int:
        """See what was committed since; returns the new `last_us`."""
        try:
            self._timeline.refresh()
        except Damaged as error:
            self._note_damage(error)
        return self.last_us

    def picture_at(self, wall_us: int) -> Picture | None:
        """What was known at that time: the picture of the newest readable sample not after it, None without one."""
        for position in range(self._timeline.find_position(wall_us), -1, -1):
            try:
                block = self._timeline.block(position)
                index = block.index_at(wall_us)
                if index >= 0:
                    return self._ticked(block.picture(index))
            except Damaged as error:
                self._mark_damaged(position, error)
        return None

    def step(self, wall_us: int, direction: int) -> int | None:
        """Wall time of the next sample (direction > 0) or the one before, None at the end."""
        began = position = max(0, self._timeline.find_position(wall_us))
        while 0 <= position < len(self._timeline):
            try:
                walls = self._timeline.block(position).walls()
                if position != began:
                    return walls[0] if direction > 0 else walls[-1]
                at = bisect_right(walls, wall_us) if direction > 0 else bisect_left(walls, wall_us) - 1
                if 0 <= at < len(walls):
                    return walls[at]
            except Damaged as error:
                self._mark_damaged(position, error)
            position += 1 if direction > 0 else -1
        return None

    def points(self, from_us: int, to_us: int) -> list[tuple[int, Point]]:
        """Chart values of the ticks between two times, both included; no sample of a sealed block is decoded."""
        found: list[tuple[int, Point]] = []
        for position in range(max(0, self._timeline.find_position(from_us)), len(self._timeline)):
            if self._timeline.starts(position) > to_us:
                break
            try:
                found += [(wall, point) for wall, point in self._points(position) if from_us <= wall <= to_us]
            except Damaged as error:
                self._note_damage(error)
        return found

    def events(self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None) -> list[Event]:
        """Events in order; with `limit` the last ones of the span."""
        try:
            return [event_of(row) for row in self._source.journal(from_us, to_us, limit)]
        except Damaged as error:
            self._note_damage(error)
            return []

    def gaps(self) -> list[Gap]:
        """Spans without samples, with the reason."""
        try:
            return sorted(self._source.gaps())
        except Damaged as error:
            self._note_damage(error)
            return []

    def close(self) -> None:
        self._source.close()
        self._timeline.forget()
        if self._aside is not None:
            self._aside.cleanup()
            self._aside = None

    def _points(self, position: int) -> list[tuple[int, Point]]:
        seq = self._timeline.sealed_seq(position)
        if seq is not None:
            return unpack_points(self._source.points(seq))
        if self._point_of is None:
            self._point_of = default_point_of()
        return self._timeline.growing(position).points(self._point_of)

    def _ticked(self, picture: Picture) -> Picture:
        """At the first tick of a block the picture has seen no other; how long a tick is, the session says."""
        if not picture.tick_us and self.meta is not None:
            picture.tick_us = self.meta.interval_us
        return picture

    def _mark_damaged(self, position: int, error: Damaged) -> None:
        self._timeline.mark_damaged(position)
        self._note_damage(error)

    def _note_damage(self, error: Damaged) -> None:
        if self._damage is None:
            self._damage = f"the recording is damaged in places ({error.message}); the rest can be read"
