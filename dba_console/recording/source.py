"""Read the stored rows of a recording from its SQLite database.

No read transaction stays open between two calls, so a reader never blocks the checkpoint of the writer's log.
"""

from __future__ import annotations

import sqlite3
from typing import Protocol, TypeVar

import msgspec

from dba_console.core.decoding import convert
from dba_console.core.errors import Damaged
from dba_console.recording.backlog import Gap
from dba_console.recording.journal import JournalRow, LogLine
from dba_console.recording.layout import SessionMeta
from dba_console.recording.sample_block import BlockEntry

T = TypeVar("T")


class Source(Protocol):
    """Rows of a session.db in the order they were written. Every method may raise Damaged."""

    def meta(self) -> dict[str, str]: ...
    def blocks(self, after_seq: int = -1) -> list[BlockEntry]: ...
    def block(self, first_seq: int) -> bytes: ...
    def points(self, first_seq: int) -> bytes: ...
    def tail(self, after_seq: int = -1) -> list[bytes]: ...
    def journal(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[JournalRow]: ...
    def gaps(self) -> list[Gap]: ...
    def output(self) -> list[LogLine]: ...
    def close(self) -> None: ...


class SqlSource:
    """Reads the database through SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def meta(self) -> dict[str, str]:
        return dict(self._rows("SELECT key, value FROM meta WHERE value IS NOT NULL", tuple[str, str]))

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        query = "SELECT first_seq, samples, first_us, last_us FROM blocks WHERE first_seq > ? ORDER BY first_seq"
        return self._rows(query, BlockEntry, after_seq)

    def block(self, first_seq: int) -> bytes:
        return self._blob("SELECT data FROM block_data WHERE first_seq = ?", first_seq)

    def points(self, first_seq: int) -> bytes:
        return self._blob("SELECT data FROM block_points WHERE first_seq = ?", first_seq)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        rows = self._rows("SELECT data FROM tail WHERE seq > ? ORDER BY seq", tuple[bytes], after_seq)
        return [data for (data,) in rows]

    def journal(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[JournalRow]:
        query = "SELECT * FROM journal WHERE wall_us >= ? AND wall_us <= ? ORDER BY seq DESC LIMIT ?"
        first, last = -(1 << 62) if from_us is None else from_us, 1 << 62 if to_us is None else to_us
        return self._rows(query, JournalRow, first, last, -1 if limit is None else limit)[::-1]

    def gaps(self) -> list[Gap]:
        return self._rows("SELECT from_us, to_us, samples, reason FROM gaps ORDER BY rowid", Gap)

    def output(self) -> list[LogLine]:
        query = "SELECT wall_us, tag, text, stream, run, block, execution FROM output ORDER BY rowid"
        return self._rows(query, LogLine)

    def close(self) -> None:
        self._connection.close()

    def _rows(self, query: str, kind: type[T], *values: int) -> list[T]:
        """The rows as `kind`, which they are checked against: a recording may come from anywhere."""
        try:
            # The type is a value here, which mypy cannot follow; msgspec checks it row by row.
            return convert(self._connection.execute(query, values).fetchall(), list[kind])  # type: ignore[valid-type]
        except (sqlite3.Error, OverflowError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise Damaged(f"cannot read session.db: {error}") from error

    def _blob(self, query: str, key: int) -> bytes:
        rows = self._rows(query, tuple[bytes], key)
        if not rows:
            raise Damaged("a block of the recording is missing")
        return rows[0][0]


def session_meta(values: dict[str, str]) -> SessionMeta | None:
    """The meta of a session from its table, None where too much of it is missing."""
    try:
        return convert(values, SessionMeta, strict=False)
    except msgspec.ValidationError:
        return None
