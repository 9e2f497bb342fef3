"""The disk side of a recording: one transaction for a batch, then its lines in `session.log`.

All of it happens in the writer's thread. A failure leaves nothing half done: the transaction is rolled back, a line
cut short is taken back, and the same batch can be written again.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from heapq import merge
from pathlib import Path

import msgspec

from dba_console.samples.event import Event
from dba_console.session import journal
from dba_console.session.backlog import Batch, SealedBlock
from dba_console.session.digests import DIGEST_EVENTS, START, RunningDigest, digest, index_digest, meta_digest
from dba_console.session.layout import DATABASE, LOG
from dba_console.session.loglines import LogLine
from dba_console.session.loglines import tidy_line as tidy_line
from dba_console.session.meta import SessionMeta
from dba_console.session.schema import create, open_for_writing


class Store:
    """`session.db` and `session.log` of one session."""

    def __init__(self, directory: Path, meta: SessionMeta) -> None:
        """Makes both files. Raises sqlite3.Error or OSError."""
        self._directory = directory
        self._meta = meta
        self._log = _open_private(directory / LOG)
        os.close(_open_private(directory / DATABASE))
        self._inode = os.stat(directory / DATABASE).st_ino
        self._connection: sqlite3.Connection | None = open_for_writing(directory / DATABASE)
        create(self._connection, meta)
        self._seq = 0
        self._head = journal.first_hash(meta.id)
        self._unlogged = ""
        self._digests: dict[str, str] = {}
        self._index: dict[str, str] = {}
        self._gaps, self._output = RunningDigest(), RunningDigest()

    @property
    def head(self) -> str:
        """Hash of the newest event on the disk."""
        return self._head

    def write(self, batch: Batch) -> None:
        """The batch, durable as one. Raises sqlite3.Error or OSError, having written none of it."""
        connection = self._open()
        lines = [tidy_line(line) for line in batch.lines]
        gaps, output = self._gaps.after(batch.gaps), self._output.after(lines)
        digests = self._digests | {_key(block): digest(block.data) for block in batch.blocks}
        index = self._index | {_key(block): index_digest(_entry(block), block.points) for block in batch.blocks}
        carried = {"blocks": digests, "index": index, "gaps": list(gaps), "output": list(output)}
        events = [self._with_digests(event, carried) for event in batch.events]
        rows = journal.link(events, self._seq, self._head)
        try:
            connection.execute("BEGIN IMMEDIATE")
            for block in batch.blocks:
                _write_block(connection, block)
            connection.executemany(
                "INSERT OR REPLACE INTO tail VALUES (?, ?, ?)", [(row.seq, row.wall_us, row.data) for row in batch.rows]
            )
            connection.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?)", batch.gaps)
            connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
            connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self._gaps, self._output = gaps, output
        has_digest_event = any(event.kind in DIGEST_EVENTS for event in events)
        self._digests, self._index = ({}, {}) if has_digest_event else (digests, index)
        if rows:
            self._seq, self._head = rows[-1].seq, rows[-1].hash
        self._unlogged += "".join(
            journal.log_line(wall_us, self._meta.host, tag, text) for wall_us, tag, text in _by_time(rows, lines)
        )
        self._write_log()

    def finish(self, reason: str) -> None:
        """Mark the session closed and fold the log into the file, so that it opens read-only anywhere."""
        connection = self._open()
        closed = json.dumps({"reason": journal.one_line(reason), "events": self._seq, "head": self._head})
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('closed', ?)", (closed,))
        # Refused while a console has it open; that is not worth waiting for.
        connection.execute("PRAGMA busy_timeout=100")
        try:
            connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError:
            # The session is complete all the same, in two files.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _open(self) -> sqlite3.Connection:
        if os.stat(self._directory / DATABASE).st_ino != self._inode:
            raise OSError("another file stands in the place of session.db")
        if self._connection is None:
            self._connection = open_for_writing(self._directory / DATABASE)
        return self._connection

    def _roll_back(self) -> None:
        """After an error the connection is given up: what it believes of the file may not be so."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            # Closing rolls back as well; an error here says no more than the one being reported.
            pass
        connection.close()

    def _with_digests(self, event: Event, carried: Mapping[str, object]) -> Event:
        """Heartbeats and the end carry the digests of what was written since the last one into the chain of hashes."""
        event = journal.tidy(event)
        if event.kind in DIGEST_EVENTS:
            event.details.update(carried)
        elif event.kind == START:
            event.details["meta"] = meta_digest(msgspec.structs.asdict(self._meta))
        return event

    def _write_log(self) -> None:
        if not self._unlogged:
            return
        data = self._unlogged.encode("utf-8", "replace")
        before = os.fstat(self._log).st_size
        try:
            written = os.write(self._log, data)
        except OSError:
            # The database has the events; their lines follow when there is room again.
            return
        if written < len(data):
            os.ftruncate(self._log, before)
            return
        self._unlogged = ""


def _key(block: SealedBlock) -> str:
    return str(block.head.first_seq)


def _entry(block: SealedBlock) -> tuple[int, int, int, int]:
    """Its line of the index, but for the bytes it takes."""
    head = block.head
    return head.first_seq, head.samples, head.first_us, head.last_us


def _by_time(rows: list[journal.JournalRow], lines: list[LogLine]) -> Iterable[tuple[int, str, str]]:
    """Time, tag and text of events and lines as they happened; each of them keeps its own order."""
    events = [(row.wall_us, row.tag, row.text) for row in rows]
    return merge(events, [line[:3] for line in lines], key=lambda one: one[0]) if lines else events


def _write_block(connection: sqlite3.Connection, block: SealedBlock) -> None:
    head = block.head
    connection.execute(
        "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)",
        (*_entry(block), len(block.data)),
    )
    connection.execute("INSERT OR REPLACE INTO block_data VALUES (?, ?)", (head.first_seq, block.data))
    connection.execute("INSERT OR REPLACE INTO block_points VALUES (?, ?)", (head.first_seq, block.points))
    connection.execute("DELETE FROM tail WHERE seq BETWEEN ? AND ?", (head.first_seq, block.last_seq))


def _open_private(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)
