"""Write a recording to disk: one transaction per batch, then its lines in `session.log`.

Everything runs in the writer's thread. A failure leaves nothing half done: the transaction is rolled back, an
incomplete line is truncated, and the same batch can be written again.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from heapq import merge
from pathlib import Path
from typing import NamedTuple

import msgspec

from dba_console.core.clock import Clock
from dba_console.recording import journal
from dba_console.recording.append_file import AppendFile
from dba_console.recording.backlog import Backlog, Batch, BlockEnd, SampleRow
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.journal import (
    DIGEST_EVENTS,
    ROW_CHAINS,
    START,
    LogLine,
    block_digest,
    chain_record,
    tidy_line,
)
from dba_console.recording.layout import APPLICATION_ID, DATABASE, FORMAT, LOG, SAMPLES, SessionMeta
from dba_console.recording.sample_block import BlockEntry
from dba_console.watch.samples.event import Event

# Tables of `session.db`, and its writing connection.
#
# WAL with synchronous=NORMAL: every commit survives a kill of the program; a host crash may lose the last ones.
# The views `events`, `steps`, `findings` and `lines` are for plain sqlite3.

NEEDED_BYTES = 1 << 20
"""Free space to begin a session. SQLite maps its shared memory file: where the file system has blocks of less than
4 kB and none is free, writing to it would end the agent by SIGBUS."""
PAGE_SIZE = 16384
"""An event fits into one page, so it can be found in a damaged file (damaged_reader)."""
WAL_PAGES = 16
"""Pages in the write-ahead log that trigger a checkpoint: some ten minutes of a quiet session, or six events."""
WAL_BYTES = 4 << 20

TABLES = frozenset(("meta", "blocks", "gaps", "journal", "output"))
"""Tables of a session; all others are views."""
_TIME = "strftime('%Y-%m-%dT%H:%M:%f', wall_us / 1e6, 'unixepoch') || 'Z'"

_MEMBER = "CASE WHEN json_valid(line) THEN json_extract(line, '$.{0}') END"

_SHOWN = ("kind", "tag", "severity", "who", "text", "details")

_TABLES = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS blocks (
    first_seq INTEGER PRIMARY KEY, samples INTEGER, first_us INTEGER, last_us INTEGER,
    at INTEGER, size INTEGER, points_size INTEGER);
CREATE TABLE IF NOT EXISTS gaps (
    from_us INTEGER, to_us INTEGER, samples INTEGER, reason TEXT);
CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, wall_us INTEGER, line TEXT);
CREATE TABLE IF NOT EXISTS output (
    wall_us INTEGER, tag TEXT, text TEXT, stream TEXT, run TEXT, block TEXT, execution INTEGER);
CREATE VIEW IF NOT EXISTS events AS
    SELECT seq, {_TIME} AS time, {", ".join(f"{_MEMBER.format(name)} AS {name}" for name in _SHOWN)},
        strftime('%Y-%m-%dT%H:%M:%f', {_MEMBER.format("occurred_us")} / 1e6, 'unixepoch') || 'Z' AS occurred
    FROM journal;
CREATE VIEW IF NOT EXISTS steps AS
    SELECT seq, time, coalesce(json_extract(details, '$.step'), tag) AS step,
        coalesce(json_extract(details, '$.state'), substr(kind, 6)) AS state, who, text, details,
        json_extract(details, '$.run') AS run
    FROM events WHERE kind LIKE 'step.%';
CREATE VIEW IF NOT EXISTS findings AS
    SELECT seq, time, substr(kind, 9) AS state, severity, text, details FROM events WHERE kind LIKE 'finding.%';
CREATE VIEW IF NOT EXISTS lines AS
    SELECT {_TIME} AS time, tag, text FROM (
        SELECT wall_us, seq, {_MEMBER.format("tag")} AS tag, {_MEMBER.format("text")} AS text FROM journal
        UNION ALL SELECT wall_us, rowid, tag, text FROM output)
    ORDER BY wall_us, seq;
"""


def require_space(directory: Path) -> None:
    """Raise OSError (ENOSPC) if less than `NEEDED_BYTES` are free where `directory` is, or is to be created."""
    place = next(path for path in (directory, *directory.parents) if path.exists())
    found = os.statvfs(place)
    if found.f_bavail * found.f_frsize < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Return a connection without autocommit. Raises sqlite3.Error."""
    # Created by the thread that starts the recording, then used only by the writer.
    connection = sqlite3.connect(path, isolation_level=None, timeout=2.0, check_same_thread=False)
    for pragma in (
        f"page_size={PAGE_SIZE}",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"wal_autocheckpoint={WAL_PAGES}",
        f"journal_size_limit={WAL_BYTES}",
        "cache_size=-250",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def create(connection: sqlite3.Connection, meta: SessionMeta) -> None:
    """Create tables, views and metadata of a new session. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.executescript("BEGIN IMMEDIATE;" + _TABLES + "COMMIT;")
    rows = list(stored_meta(meta).items())
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
    connection.execute("COMMIT")
    # The header must be in the file, not only in its log: it identifies the session.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class Store:
    """`session.db`, `session.samples` and `session.log` of one session."""

    def __init__(self, directory: Path, meta: SessionMeta) -> None:
        """Create the files. Raises sqlite3.Error or OSError."""
        self._meta = meta
        self._log = _open_private(directory / LOG)
        os.close(_open_private(directory / DATABASE))
        self._database = str(directory / DATABASE)
        self._inode = os.stat(self._database).st_ino
        self._connection: sqlite3.Connection | None = open_for_writing(directory / DATABASE)
        create(self._connection, meta)
        self._samples = AppendFile.create(directory / SAMPLES, b"")
        self._open_block: _OpenBlock | None = None
        self._chain = ChainHead.of(meta.id)
        self._unlogged = ""
        self._digests: dict[str, str] = {}
        self._gaps, self._output = (ChainHead.of(name) for name in ROW_CHAINS)

    @property
    def head(self) -> str:
        """Return the hash of the newest event on disk."""
        return self._chain.hash

    def write(self, batch: Batch) -> None:
        """Write the batch atomically. Raises sqlite3.Error or OSError if nothing was written."""
        self._require_file()
        before = self._samples.size
        layout = _Layout(before, self._open_block)
        for item in batch.samples:
            layout.add(item)
        if layout.data:
            # The index of a block must not reach the disk before the block.
            self._samples.append(bytes(layout.data), sync=bool(layout.entries))
        try:
            if layout.entries or batch.events or batch.gaps or batch.lines:
                self._write_rows(batch, layout)
        except (sqlite3.Error, OSError):
            self._samples.cut(before)
            raise
        self._open_block = layout.block
        self._write_log()

    def _write_rows(self, batch: Batch, layout: _Layout) -> None:
        connection = self._connect()
        lines = [tidy_line(line) for line in batch.lines]
        gaps = self._gaps.after_all(map(chain_record, batch.gaps))
        output = self._output.after_all(map(chain_record, lines))
        digests = self._digests | layout.digests
        carried = {"blocks": digests, "gaps": list(gaps), "output": list(output)}
        events = [self._with_digests(event, carried) for event in batch.events]
        rows = journal.link(events, self._chain)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?)", layout.entries)
            connection.executemany("INSERT INTO gaps VALUES (?, ?, ?, ?)", batch.gaps)
            connection.executemany("INSERT INTO journal VALUES (?, ?, ?)", rows)
            connection.executemany("INSERT INTO output VALUES (?, ?, ?, ?, ?, ?, ?)", lines)
            connection.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self._gaps, self._output = gaps, output
        self._digests = {} if any(event.kind in DIGEST_EVENTS for event in events) else digests
        if rows:
            self._chain = ChainHead(rows[-1].seq, rows[-1].hash)
        self._unlogged += "".join(
            journal.log_line(wall_us, self._meta.host, tag, text) for wall_us, tag, text in _by_time(events, lines)
        )

    def finish(self, reason: str) -> None:
        """Mark the session closed and checkpoint the log, so that the file can be opened read-only anywhere."""
        self._require_file()
        connection = self._connect()
        closed = json.dumps({"reason": journal.one_line(reason), "events": self._chain.seq, "head": self._chain.hash})
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('closed', ?)", (closed,))
        # Fails while a console has it open; do not wait for it.
        connection.execute("PRAGMA busy_timeout=100")
        try:
            connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError:
            # The session is complete, but in two files.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._samples.close()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _require_file(self) -> None:
        if os.stat(self._database).st_ino != self._inode:
            raise OSError("another file has replaced session.db")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = open_for_writing(Path(self._database))
        return self._connection

    def _roll_back(self) -> None:
        """Close the connection after an error: its view of the file may be wrong."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            # Closing rolls back too; an error here adds nothing to the one reported.
            pass
        connection.close()

    def _with_digests(self, event: Event, carried: Mapping[str, object]) -> Event:
        """Add the digests of what was written since the last heartbeat to a heartbeat or end event."""
        event = journal.tidy(event)
        if event.kind in DIGEST_EVENTS:
            event.details.update(carried)
        elif event.kind == START:
            event.details["meta"] = stored_meta(self._meta)
        return event

    def _write_log(self) -> None:
        if not self._unlogged:
            return
        data = self._unlogged.encode("utf-8", "replace")
        before = os.fstat(self._log).st_size
        try:
            written = os.write(self._log, data)
        except OSError:
            # The database has the events; their lines follow when there is space again.
            return
        if written < len(data):
            os.ftruncate(self._log, before)
            return
        self._unlogged = ""


def stored_meta(meta: SessionMeta) -> dict[str, str]:
    """Return the metadata as stored in their table, and in the first event."""
    return {key: str(value) for key, value in msgspec.structs.asdict(meta).items() if value is not None}


class _OpenBlock(NamedTuple):
    """A block whose records are being written; its entry has no chart values yet."""

    entry: BlockEntry
    chain: ChainHead


class _Layout:
    """Where the samples of one batch go in `session.samples`, and the index of the blocks that end in it."""

    def __init__(self, at: int, block: _OpenBlock | None) -> None:
        self.data = bytearray()
        self.entries: list[BlockEntry] = []
        self.digests: dict[str, str] = {}
        self.block = block
        self._at = at

    def add(self, item: SampleRow | BlockEnd) -> None:
        """Append a sample or the end of a block."""
        if isinstance(item, SampleRow):
            self._add_row(item)
        elif self.block is not None and self.block.entry.first_seq == item.base_seq:
            self._end_block(item.points)

    def _add_row(self, row: SampleRow) -> None:
        block = self.block
        if block is None or block.entry.first_seq != row.base_seq:
            self._end_block(b"")  # its other samples were dropped while the disk was stalled
            at = self._at + len(self.data)
            entry = BlockEntry(row.seq, 0, row.wall_us, row.wall_us, at, 0, 0)
            block = _OpenBlock(entry, ChainHead.of("block"))
        entry, chain = block
        size = entry.size + len(row.data)
        entry = entry._replace(samples=entry.samples + 1, last_us=row.wall_us, size=size)
        self.block = _OpenBlock(entry, chain.after(row.data))
        self.data += row.data

    def _end_block(self, points: bytes) -> None:
        if self.block is None:
            return
        entry = self.block.entry._replace(points_size=len(points))
        self.entries.append(entry)
        self.digests[str(entry.first_seq)] = block_digest(entry, self.block.chain, points)
        self.data += points
        self.block = None


def _by_time(events: list[Event], lines: list[LogLine]) -> Iterable[tuple[int, str, str]]:
    """Return time, tag and text of events and lines merged by time; the order within each is kept."""
    logged = [(event.wall_us, event.tag, journal.logged_text(event)) for event in events]
    return merge(logged, [line[:3] for line in lines], key=lambda one: one[0]) if lines else logged


def _open_private(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


# The writer thread. Only it waits for the disk; if the disk fails, it retries and reports the status.

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 5.0


class Writer:
    """Writes a backlog to a store until the backlog is closed and empty."""

    def __init__(self, store: Store, backlog: Backlog, clock: Clock, recovered: Callable[[], None]) -> None:
        """`recovered` is called in this thread when writing works again after a failure."""
        self._store = store
        self._backlog = backlog
        self._clock = clock
        self._recovered = recovered
        self._reason = "closed"
        self.failure: str | None = None
        """Why the last write failed, None if it succeeded."""
        self.busy_since_us: int | None = None
        """Monotonic start time of the current write."""
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recording-writer", daemon=True)
        self._thread.start()

    def end(self, reason: str) -> None:
        """End the thread when everything is written; a failing disk is tried once more."""
        self._reason = reason
        self._backlog.close()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while self._wait(retry_s if self.failure else None):
            if self._write():
                retry_s = FIRST_RETRY_S
            elif self._backlog.closing:
                break
            else:
                retry_s = min(retry_s * 2, LAST_RETRY_S)
        self._finish()
        self.ended.set()

    def _wait(self, retry_s: float | None) -> bool:
        """Wait for data; return False when everything is written and the backlog is closed."""
        backlog = self._backlog
        with backlog.changed:
            if retry_s is not None:
                backlog.changed.wait_for(lambda: backlog.closing, retry_s)
            backlog.changed.wait_for(lambda: backlog.closing or not backlog.empty())
            return not backlog.empty()

    def _write(self) -> bool:
        batch = self._backlog.take()
        self.busy_since_us = self._clock.mono_us()
        try:
            self._store.write(batch)
        except (sqlite3.Error, OSError) as error:
            self.failure = explain(error)
            return False
        finally:
            self.busy_since_us = None
        self._backlog.written(batch)
        failure, self.failure = self.failure, None
        if failure is not None:
            self._recovered()
        return True

    def _finish(self) -> None:
        self.busy_since_us = self._clock.mono_us()
        try:
            if self.failure is None:
                self._store.finish(self._reason)
            self._store.close()
        except (sqlite3.Error, OSError) as error:
            self.failure = explain(error)
        finally:
            self.busy_since_us = None


def explain(error: Exception, path: Path | None = None) -> str:
    """Return a message for a write error: what failed, and what to do.

    >>> explain(OSError(28, "No space left on device"))
    'no space left for the recording: free space, it then continues automatically'
    """
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    lowered = text.lower()
    where = f" ({path})" if path is not None else ""
    if "full" in lowered or "no space" in lowered or "quota" in lowered:
        return f"no space left for the recording{where}: free space, it then continues automatically"
    if "no such file" in lowered or "another file" in lowered:
        return f"the session directory was removed{where}: restart the agent to record again"
    if "readonly" in lowered or "read-only" in lowered:
        return f"the file system of the recording is read-only{where}: check the kernel log, remount it"
    if "i/o error" in lowered or "input/output" in lowered:
        return f"the disk of the recording reports I/O errors{where}: check the kernel log"
    return f"cannot write the recording{where}: {text}"
