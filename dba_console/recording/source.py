"""Read the stored content of a recording: events and index from its SQLite database, samples from `session.samples`.

No read transaction stays open between two calls, so a reader never blocks the checkpoint of the writer's log.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from dba_console.core.decoding import convert
from dba_console.core.errors import Damaged
from dba_console.recording.backlog import Gap
from dba_console.recording.journal import JournalRow, LogLine
from dba_console.recording.layout import SAMPLES, SessionMeta
from dba_console.recording.sample_block import BLOCK_LIMIT, BlockEntry, scan_records

T = TypeVar("T")

MOST_READ = 256 << 20
"""Bytes of the rows of one query: a busy week has 30 MB of events. Lines of output, which may be more, are read in
pages."""
_ROW_BYTES = 100
"""Of a value in memory, beside its text."""
_PAGE = 500
_BLOCKS = f"SELECT {', '.join(BlockEntry._fields)} FROM blocks"


class Source(Protocol):
    """The content of a session in the order it was written. Every method may raise Damaged."""

    def meta(self) -> dict[str, str]: ...
    def blocks(self, after_seq: int = -1) -> list[BlockEntry]: ...
    def block(self, first_seq: int) -> bytes: ...
    def points(self, first_seq: int) -> bytes: ...
    def tail(self, after_seq: int = -1) -> list[bytes]: ...
    def journal(
        self, from_us: int | None, to_us: int | None, limit: int | None, after_seq: int | None = None
    ) -> list[JournalRow]:
        """Return the last `limit` events of a span, or the first ones after a number; None: all."""
        ...

    def notes(self, after_seq: int) -> tuple[int, list[JournalRow]]: ...
    def gaps(self) -> list[Gap]: ...
    def output(self, after: int = 0, limit: int = -1) -> list[LogLine]: ...
    def close(self) -> None: ...


class SampleFile:
    """`session.samples`, opened for reading. A missing file is like an empty one."""

    def __init__(self, directory: Path) -> None:
        self.descriptor = -1
        try:
            # Opening a pipe would block forever; opening a device may have side effects.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            self.descriptor = os.open(directory / SAMPLES, flags)
            if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
                self.close()
        except OSError:
            return

    def size(self) -> int:
        return 0 if self.descriptor < 0 else os.fstat(self.descriptor).st_size

    def read(self, at: int, size: int) -> bytes:
        """Return these bytes, fewer if the file is shorter. Raises Damaged."""
        if self.descriptor < 0 or at < 0 or not 0 <= size <= BLOCK_LIMIT:
            return b""
        try:
            return os.pread(self.descriptor, size, at)
        except (OSError, OverflowError) as error:
            raise Damaged(f"cannot read {SAMPLES}: {error}") from error

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class SqlSource:
    """Reads the database through SQLite, and the samples where its index says."""

    def __init__(self, connection: sqlite3.Connection, samples: SampleFile) -> None:
        self._connection = connection
        self._samples = samples

    def meta(self) -> dict[str, str]:
        return dict(self._rows("SELECT key, value FROM meta WHERE value IS NOT NULL", tuple[str, str]))

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        return self._rows(f"{_BLOCKS} WHERE first_seq > ? ORDER BY first_seq", BlockEntry, after_seq)

    def block(self, first_seq: int) -> bytes:
        entry = self._entry(first_seq)
        return self._samples.read(entry.at, entry.size)

    def points(self, first_seq: int) -> bytes:
        entry = self._entry(first_seq)
        return self._samples.read(entry.at + entry.size, entry.points_size)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        newest = self._rows(f"{_BLOCKS} ORDER BY at DESC LIMIT 1", BlockEntry)
        at = newest[0].end if newest else 0
        data = self._samples.read(at, min(self._samples.size() - at, BLOCK_LIMIT))
        return [data[at : at + record.end] for at, record in scan_records(data) if record.seq > after_seq]

    def missing_bytes(self) -> int:
        """Return the bytes of blocks that were cut off from the end of the file."""
        newest = self._rows(f"{_BLOCKS} ORDER BY at DESC LIMIT 1", BlockEntry)
        return max(0, newest[0].end - self._samples.size()) if newest else 0

    def journal(
        self, from_us: int | None, to_us: int | None, limit: int | None, after_seq: int | None = None
    ) -> list[JournalRow]:
        query = "SELECT seq, wall_us, line FROM journal WHERE wall_us >= ? AND wall_us <= ?"
        first, last = -(1 << 62) if from_us is None else from_us, 1 << 62 if to_us is None else to_us
        count = -1 if limit is None else limit
        if after_seq is not None:
            return self._rows(f"{query} AND seq > ? ORDER BY seq LIMIT ?", JournalRow, first, last, after_seq, count)
        return self._rows(f"{query} ORDER BY seq DESC LIMIT ?", JournalRow, first, last, count)[::-1]

    def notes(self, after_seq: int) -> tuple[int, list[JournalRow]]:
        """Return the number of the newest event, and the later ones that may be about another time than their own."""
        [(newest,)] = self._rows("SELECT coalesce(max(seq), 0) FROM journal", tuple[int])
        query = (
            "SELECT seq, wall_us, line FROM journal WHERE seq > ? AND line GLOB '*\"occurred_us\":[-0-9]*' ORDER BY seq"
        )
        return newest, self._rows(query, JournalRow, after_seq)

    def gaps(self) -> list[Gap]:
        return self._rows("SELECT from_us, to_us, samples, reason FROM gaps ORDER BY rowid", Gap)

    def output(self, after: int = 0, limit: int = -1) -> list[LogLine]:
        """Return at most `limit` lines in the order they were written, without the first `after`; -1: all."""
        # Rows are only appended: numbered from 1. With other numbers a page would never be the last one.
        last = after + limit if limit >= 0 else 1 << 62
        query = "SELECT wall_us, tag, text, stream, run, block, execution FROM output WHERE rowid > ? AND rowid <= ?"
        return self._rows(f"{query} ORDER BY rowid", LogLine, after, last)

    def close(self) -> None:
        self._connection.close()
        self._samples.close()

    def _entry(self, first_seq: int) -> BlockEntry:
        rows = self._rows(f"{_BLOCKS} WHERE first_seq = ?", BlockEntry, first_seq)
        if not rows:
            raise Damaged("a block of the recording is missing")
        return rows[0]

    def _rows(self, query: str, kind: type[T], *values: int) -> list[T]:
        """The rows as `kind`, which they are checked against: a recording may come from anywhere."""
        try:
            cursor = self._connection.execute(query, values)
            rows: list[T] = []
            size = 0
            while page := cursor.fetchmany(_PAGE):
                size += sum(_ROW_BYTES + len(value) for row in page for value in row if isinstance(value, str | bytes))
                if size > MOST_READ:
                    raise Damaged(f"cannot read session.db: more than {MOST_READ >> 20} MB at once are not a session")
                # The type is a value here, which mypy cannot follow; msgspec checks it row by row.
                rows += convert(page, list[kind])  # type: ignore[valid-type]
            return rows
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise Damaged(f"cannot read session.db: {error}") from error


def session_meta(values: dict[str, str]) -> SessionMeta | None:
    """The meta of a session from its table, None where too much of it is missing."""
    try:
        return convert(values, SessionMeta, strict=False)
    except msgspec.ValidationError:
        return None
