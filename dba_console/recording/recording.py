"""Read a recording: the samples at a point in time, the next and previous one, chart values, events, gaps.

Works on a session being written (`refresh` reads new commits), a closed one, one whose agent was killed, and a damaged
one as far as possible: `damage` then names the problem. Only SessionError is raised.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import struct
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from heapq import merge
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple
from urllib.parse import quote

from dba_console.core.errors import Damaged, SessionError
from dba_console.recording.backlog import Gap
from dba_console.recording.damaged_reader import FallbackSource, ScanSource
from dba_console.recording.journal import LogLine, event_of
from dba_console.recording.layout import APPLICATION_ID, DATABASE, FORMAT, SAMPLES, SQLITE_MAGIC, SessionMeta, is_live
from dba_console.recording.points import Point, default_point_of, unpack_points
from dba_console.recording.source import SampleFile, Source, SqlSource, session_meta
from dba_console.recording.store import TABLES
from dba_console.recording.timeline import Timeline
from dba_console.watch.frames.picture import Picture
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample

# Open session.db for reading: check the file, then use the least intrusive way that works.
#
# A live session is read concurrently with its writer. If the directory is not writable (another user, a read-only
# mount), SQLite cannot create its shared memory: a closed session is then read as immutable, one with a log is copied.

_COPY_LIMIT = 1 << 30
_OUTPUT_PAGE = 5_000
"""Lines of output read at a time."""
_EVENTS_PAGE = 1_000
"""Events read at a time by `each_event`."""


def check_header(directory: Path) -> str | None:
    """Return the damage of the file, None if there is none.

    Raises SessionError if it is not a recording, or has an unknown format.
    """
    path = directory / DATABASE
    for sibling in (*(f"{DATABASE}{ending}" for ending in ("-wal", "-shm", "-journal")), SAMPLES):
        _require_file(directory / sibling)
    try:
        # Opening a pipe would block forever; opening a device may have side effects.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SessionError(f"{path} is not a recording: not a regular file")
            header = file.read(100)
            size = os.fstat(descriptor).st_size
    except FileNotFoundError:
        raise SessionError(
            f"no recording in {directory}: session.db is missing", hint="`dba-console session list` lists the sessions"
        ) from None
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror}") from error
    if size == 0:
        raise SessionError(f"the recording {directory.name} is empty")
    if len(header) < 100 or not header.startswith(SQLITE_MAGIC):
        return "damaged header"
    page_size, pages = struct.unpack_from(">H", header, 16)[0], struct.unpack_from(">I", header, 28)[0]
    version, application = struct.unpack_from(">I", header, 60)[0], struct.unpack_from(">I", header, 68)[0]
    if application != APPLICATION_ID:
        raise SessionError(f"{path} is an SQLite database, but not a recording of dba-console")
    if version > FORMAT:
        raise SessionError(
            f"the recording {directory.name} has format {version}; this program reads up to {FORMAT}",
            hint="read it with the version of dba-console that wrote it, or a newer one",
        )
    whole = pages * (65536 if page_size == 1 else page_size)
    if size < whole and not os.path.exists(f"{path}-wal") and not is_live(directory):
        return f"truncated: {size} of {whole} bytes exist"
    return None


def _require_file(path: Path) -> None:
    """Raise SessionError if the path is not a regular file, because SQLite would open it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise SessionError(f"{path} is not a regular file: this is not a recording")


def connect(directory: Path) -> tuple[sqlite3.Connection, tempfile.TemporaryDirectory[str] | None]:
    """Return a read-only connection, and the directory of a copy if one was needed. Raises Damaged."""
    path = directory / DATABASE
    try:
        return _try(f"file:{quote(str(path))}?mode=ro"), None
    except sqlite3.OperationalError as error:
        if "malformed" in str(error) or "locked" in str(error):
            raise Damaged(f"cannot read session.db: {error}") from error
    except sqlite3.Error as error:
        raise Damaged(f"cannot read session.db: {error}") from error
    try:
        return _connect_to_copy(path)
    except (sqlite3.Error, OSError) as error:
        raise Damaged(f"cannot read session.db: {error}") from error


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
    # Limits for a file from anyone: a longer value is an error, instead of as much memory as the file says.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
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
    """Raise SessionError if one of our tables is a view, a virtual table or has computed columns: reading it would run
    foreign code, possibly without end."""
    # Names in SQLite are case-insensitive, and its schema is executed as SQL.
    ours = f"SELECT name, substr(sql, 1, 40) FROM sqlite_master WHERE lower(name) IN ({', '.join('?' * len(TABLES))})"
    found = connection.execute(ours, sorted(TABLES)).fetchall()
    for name, sql in found:
        plain = name in TABLES and str(sql).lower().split()[:2] == ["create", "table"]
        if not plain or any(row[6] for row in connection.execute(f"PRAGMA table_xinfo({name})")):
            raise SessionError(f"not a recording of dba-console: {name} is not a plain table")
    _require_few_rows(connection, [name for name, _ in found])


_MOST_ROWS = {"journal": ("seq", 2_000_000), "gaps": ("rowid", 1_000_000), "output": ("rowid", 50_000_000)}
"""Table -> its key, and the most rows: three events and eighty lines of output a second, for a week."""
_MOST_BLOCKS = 100_000


def _require_few_rows(connection: sqlite3.Connection, tables: Collection[str]) -> None:
    """Raise SessionError if a table may have more rows than any recording: they would be read into memory."""
    for table, (key, most) in _MOST_ROWS.items():
        if table in tables:
            [(first, last)] = connection.execute(f"SELECT min({key}), max({key}) FROM {table}").fetchall()
            if isinstance(first, int) and isinstance(last, int) and last - first >= most:
                raise SessionError(f"not a recording of dba-console: its table {table} has too many rows")
    if "blocks" in tables:
        counted = f"SELECT count(*) FROM (SELECT 1 FROM blocks LIMIT {_MOST_BLOCKS + 1})"
        if connection.execute(counted).fetchone()[0] > _MOST_BLOCKS:
            raise SessionError("not a recording of dba-console: its table blocks has too many rows")


LONGEST_VALUE = 4 << 20
"""Bytes of one value, or of one row: an event with a document has a tenth."""


class BlockContent(NamedTuple):
    """Consecutive ticks. The first sample of a block repeats the last two readings of every part, each with the time it
    was read (see `key_sample`)."""

    samples: list[Sample]
    points: list[tuple[int, Point]]
    """Wall time and chart values of each tick."""


_happened_us = attrgetter("happened_us")


class Recording:
    """A recording opened for reading with `Recording.open`. Not thread-safe."""

    def __init__(self, directory: Path, stored: Source, copy_directory: TemporaryDirectory[str] | None = None) -> None:
        self.directory = directory
        self.stored = stored
        """The stored content of the session, for verification and measuring."""
        self._aside = copy_directory
        self._damage: str | None = None
        self._values = stored.meta()
        self._source = FallbackSource(stored, lambda: ScanSource(directory), self.state == "crashed")
        self.meta: SessionMeta | None = session_meta(self._values)
        """None if too much of it is lost."""
        self._timeline = Timeline(self._source)
        self._notes: dict[int, Event] = {}
        """Notes about another time than the one they were recorded at, by number."""
        self._notes_in_order: list[Event] = []
        """The same by the time they are about."""
        self._notes_until = 0
        self._point_of: Callable[[Picture], Point] | None = None
        self._timeline.refresh()

    @classmethod
    def open(cls, path: str | Path) -> Recording:
        """Open a session directory (or its session.db). Raises SessionError."""
        directory = Path(path)
        if directory.name == DATABASE:
            directory = directory.parent
        damage = check_header(directory)
        if damage is None:
            try:
                return cls._through_sqlite(directory)
            except Damaged as error:
                damage = error.message
        return cls._by_searching(directory, damage)

    @classmethod
    def _through_sqlite(cls, directory: Path) -> Recording:
        connection, copy_directory = connect(directory)
        source = SqlSource(connection, SampleFile(directory))
        try:
            recording = cls(directory, source, copy_directory)
            if missing := source.missing_bytes():
                recording._damage = f"the recording is damaged (truncated: {missing} bytes of samples are missing)"
            return recording
        except Damaged:
            source.close()
            if copy_directory is not None:
                copy_directory.cleanup()
            raise

    @classmethod
    def _by_searching(cls, directory: Path, damage: str) -> Recording:
        source = ScanSource(directory)
        if not source.found():
            source.close()
            raise SessionError(
                f"cannot read the recording {directory.name}: {damage}",
                hint="its session.log may still have the events",
            )
        recording = cls(directory, source)
        events = len(source.journal(None, None, None))
        left = f"{recording.samples} samples, {events} events"
        recording._damage = f"the recording is damaged ({damage}); {left} can still be read"
        return recording

    @property
    def damage(self) -> str | None:
        """Return the damage of the files; None if none is known."""
        problem = self._damage or self._source.trouble or self._timeline.trouble
        if problem is None or problem is self._damage:
            return problem
        return f"the recording is damaged in places ({problem}); the rest can be read"

    @property
    def samples(self) -> int:
        """Return the number of samples in the index, including blocks found damaged later."""
        return self._timeline.samples

    @property
    def first_us(self) -> int:
        """Return the wall time of the first sample; without samples, the start of the session."""
        first = self._timeline.first_us
        return self._start_us if first is None else first

    @property
    def last_us(self) -> int:
        """Return the wall time of the newest sample."""
        last = self._timeline.last_us
        return self._start_us if last is None else last

    @property
    def bounds_us(self) -> tuple[int, int]:
        """Return the earliest and the latest wall time of samples and events: the host's clock may have been set."""
        walls = [event.wall_us for event in self.events(limit=1)]
        walls += [note.happened_us for note in self._notes.values()]
        if self.meta is not None:
            walls.append(self.meta.start_wall_us)
        walls += self._timeline.bounds or ()
        return (min(walls), max(walls)) if walls else (0, 0)

    @property
    def _start_us(self) -> int:
        return 0 if self.meta is None else self.meta.start_wall_us

    @property
    def state(self) -> Literal["live", "closed", "crashed"]:
        """Return the state; crashed: its agent ended without closing it."""
        if is_live(self.directory):
            return "live"
        return "crashed" if self.closed is None else "closed"

    @property
    def closed(self) -> str | None:
        """Return the closing note (JSON: reason, events, head), None if it was not closed."""
        return self._values.get("closed")

    def refresh(self) -> int:
        """Read what was committed since; return the new `last_us`."""
        try:
            self._timeline.refresh()
        except Damaged as error:
            self._note_damage(error)
        return self.last_us

    def picture_at(self, wall_us: int) -> Picture | None:
        """Return the picture of the newest readable sample not after that time, None if there is none."""
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
        """Return the wall time of the next (direction > 0) or previous sample, None at the end."""
        began = position = max(0, self._timeline.find_position(wall_us))
        while 0 <= position < len(self._timeline):
            try:
                walls = self._timeline.block(position).walls
                if position != began:
                    return walls[0] if direction > 0 else walls[-1]
                at = bisect_right(walls, wall_us) if direction > 0 else bisect_left(walls, wall_us) - 1
                if 0 <= at < len(walls):
                    return walls[at]
            except Damaged as error:
                self._mark_damaged(position, error)
            position += 1 if direction > 0 else -1
        return None

    def pictures(self, from_us: int, to_us: int) -> Iterator[Picture]:
        """Yield the picture of every readable sample between two times, inclusive, in the order they were recorded."""
        for position in self._timeline.find_overlapping(from_us, to_us):
            try:
                block = self._timeline.block(position)
                for index, wall_us in enumerate(block.walls):
                    if from_us <= wall_us <= to_us:
                        yield self._ticked(block.picture(index))
            except Damaged as error:
                self._mark_damaged(position, error)

    def points(self, from_us: int, to_us: int) -> list[tuple[int, Point]]:
        """Return the chart values between two times, inclusive; samples of complete blocks are not decoded."""
        found: list[tuple[int, Point]] = []
        for position in self._timeline.find_overlapping(from_us, to_us):
            try:
                found += [(wall, point) for wall, point in self._points(position) if from_us <= wall <= to_us]
            except Damaged as error:
                self._note_damage(error)
        return found

    def blocks(self, from_us: int, to_us: int) -> Iterator[BlockContent]:
        """Yield what was recorded between two times, inclusive, in the order it was recorded, up to ten minutes each.

        A part that cannot be read is missing, and `damage` names the problem.
        """
        for position in self._timeline.find_overlapping(from_us, to_us):
            samples, points = self._readable_samples(position), self._readable_points(position)
            yield BlockContent(
                [sample for sample in samples if from_us <= sample.wall_us <= to_us],
                [(wall_us, point) for wall_us, point in points if from_us <= wall_us <= to_us],
            )

    def _readable_samples(self, position: int) -> list[Sample]:
        try:
            block = self._timeline.block(position)
        except Damaged as error:
            self._mark_damaged(position, error)
            return []
        samples = block.readable_samples()
        if block.damage is not None:
            self._note_damage(block.damage)
        return samples

    def _readable_points(self, position: int) -> list[tuple[int, Point]]:
        try:
            return self._points(position)
        except Damaged as error:
            self._note_damage(error)
            return []

    def events(self, from_us: int | None = None, to_us: int | None = None, limit: int | None = None) -> list[Event]:
        """Return events in order, notes about another time at that time; with `limit` the last ones of the span."""
        first, last = -(1 << 62) if from_us is None else from_us, 1 << 62 if to_us is None else to_us
        try:
            self._read_notes()
            more = sum(first <= note.wall_us <= last for note in self._notes.values())
            rows = self._source.journal(from_us, to_us, None if limit is None else limit + more)
        except Damaged as error:
            self._note_damage(error)
            return []
        found = [event_of(row) for row in rows if row.seq not in self._notes]
        start = bisect_left(self._notes_in_order, first, key=_happened_us)
        end = bisect_right(self._notes_in_order, last, key=_happened_us)
        if start < end:
            notes = self._notes_in_order[start if limit is None else max(start, end - limit) : end]
            found = list(merge(found, notes, key=_happened_us))
        return found if limit is None else found[max(0, len(found) - limit) :]

    def each_event(self, from_us: int, to_us: int) -> Iterator[Event]:
        """Yield the events that `events` returns, with a few of them in memory."""
        try:
            self._read_notes()
            notes = [note for note in self._notes_in_order if from_us <= note.happened_us <= to_us]
            yield from merge(self._recorded_events(from_us, to_us), notes, key=_happened_us)
        except Damaged as error:
            self._note_damage(error)

    def _recorded_events(self, from_us: int, to_us: int) -> Iterator[Event]:
        """Yield the events recorded in a span, without notes about another time than their own."""
        after_seq = -(1 << 62)
        while page := self._source.journal(from_us, to_us, _EVENTS_PAGE, after_seq):
            after_seq = page[-1].seq
            yield from (event_of(row) for row in page if row.seq not in self._notes)

    def _read_notes(self) -> None:
        """Read the notes about another time than their own that were recorded since the last call."""
        self._notes_until, rows = self._source.notes(self._notes_until)
        if found := {row.seq: note for row in rows if (note := event_of(row)).occurred_us is not None}:
            self._notes |= found
            self._notes_in_order = sorted(self._notes.values(), key=_happened_us)

    def output(self, from_us: int | None = None, to_us: int | None = None) -> Iterator[LogLine]:
        """Yield the lines of commands' output between two wall times, inclusive, in the order they were written."""
        first, last = -(1 << 62) if from_us is None else from_us, 1 << 62 if to_us is None else to_us
        read = 0
        try:
            while page := self._source.output(read, _OUTPUT_PAGE):
                read += len(page)
                yield from (one for one in page if first <= one.wall_us <= last)
        except Damaged as error:
            self._note_damage(error)

    def gaps(self) -> list[Gap]:
        """Return the spans without samples, with the reason."""
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
        if seq is not None and (stored := self._source.points(seq)):
            return unpack_points(stored)
        if self._point_of is None:
            self._point_of = default_point_of()
        return self._timeline.block(position).points(self._point_of)

    def _ticked(self, picture: Picture) -> Picture:
        """Set the tick length from the session: at the first tick of a block the picture cannot derive it."""
        if not picture.tick_us and self.meta is not None:
            picture.tick_us = self.meta.interval_us
        return picture

    def _mark_damaged(self, position: int, error: Damaged) -> None:
        self._timeline.mark_damaged(position)
        self._note_damage(error)

    def _note_damage(self, error: Damaged) -> None:
        if self._damage is None:
            self._damage = f"the recording is damaged in places ({error.message}); the rest can be read"
