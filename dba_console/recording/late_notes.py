"""Append notes to a session that is no longer recorded: closed, left by a killed agent, or copied from another host.

The notes continue the chain of events. The metadata then say with which event the notes begin and which is the newest,
so that `session verify` reports them as later, and notices if they are removed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from dba_console.core.decoding import from_json
from dba_console.core.errors import Damaged, SessionError
from dba_console.recording.append_file import AppendFile
from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.journal import LATER_NOTES, JournalRow, LaterNotes, link, log_line, logged_text, tidy
from dba_console.recording.layout import DATABASE, LOG, SessionLock
from dba_console.recording.recording import Recording
from dba_console.recording.source import SqlSource
from dba_console.watch.samples.event import Event


def append_notes(directory: Path, notes: Sequence[Event]) -> None:
    """Append at least one note, all or none, under the session's lock.

    Raises SessionError if another process records the session, its events are damaged, or it cannot be written.
    """
    try:
        lock = SessionLock(directory)
    except SessionError as error:
        raise SessionError(f"no note was added: {error.message}") from error
    try:
        _require_plain_file(directory)
        host = _require_sound_events(directory)
        prepared = [tidy(note) for note in notes]
        _append(directory, prepared)
        _append_log(directory, host, prepared)
    except Damaged as error:
        raise SessionError(f"no note was added: {error.message}", hint="session verify shows the damage") from error
    except (sqlite3.Error, OSError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise SessionError(f"no note was added: cannot write {directory / DATABASE}: {why}") from error
    finally:
        lock.release()


def _require_plain_file(directory: Path) -> None:
    """Raise Damaged if writing would change another file: behind a link, or by the rollback of a foreign journal, which
    can name a file that SQLite then deletes. Recordings have a write-ahead log instead."""
    links = any((directory / f"{DATABASE}{ending}").is_symlink() for ending in ("", "-wal", "-shm"))
    if links or os.path.lexists(directory / f"{DATABASE}-journal"):
        raise Damaged(f"{DATABASE} is a link, or another program was interrupted while it wrote it")


def _require_sound_events(directory: Path) -> str:
    """Return the host of the session. Raises Damaged if SQLite cannot read every event that is in the files: writing
    would complete or discard the write-ahead log, and with it what only a search of its bytes still finds."""
    with closing(Recording.open(directory)) as recording:
        stored = recording.stored
        if not isinstance(stored, SqlSource):
            raise Damaged(recording.damage or "the events are damaged")
        newest, _ = stored.notes(0)
        if any(event.seq > newest for event in recording.events(limit=1)):
            raise Damaged("its newest events are only in a damaged write-ahead log")
        if recording.meta is None:
            raise Damaged("the session metadata are damaged")
        return recording.meta.host


def _append(directory: Path, notes: Sequence[Event]) -> None:
    with closing(sqlite3.connect(directory / DATABASE, isolation_level=None, timeout=2.0)) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("BEGIN IMMEDIATE")  # closing the connection rolls it back after an error
        if connection.execute("SELECT 1 FROM sqlite_master WHERE lower(type) = 'trigger'").fetchone():
            raise Damaged(f"{DATABASE} has triggers, which a recording has not: they would run")
        rows = link(notes, _head(connection))
        later = LaterNotes(_first_later(connection) or rows[0].seq, rows[-1].seq, rows[-1].hash)
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?)", rows)
        stored = msgspec.json.encode(later).decode()
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (LATER_NOTES, stored))
        connection.execute("COMMIT")


def _head(connection: sqlite3.Connection) -> ChainHead:
    """Return the head of the chain of events. Raises Damaged."""
    newest = connection.execute("SELECT seq, wall_us, line FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
    if newest is None:
        (name,) = connection.execute("SELECT value FROM meta WHERE key = 'id'").fetchone() or ("",)
        return ChainHead.of(str(name))
    try:
        head = ChainHead(int(newest[0]), JournalRow(*newest).hash)
        bytes.fromhex(head.hash)
    except (TypeError, ValueError, AttributeError):
        raise Damaged("its newest event is damaged") from None
    if len(head.hash) != 64:
        raise Damaged("its newest event is damaged")
    return head


def _first_later(connection: sqlite3.Connection) -> int | None:
    """Return the number of the first note added earlier, None if none was."""
    stored = connection.execute("SELECT value FROM meta WHERE key = ?", (LATER_NOTES,)).fetchone()
    try:
        return None if stored is None else from_json(str(stored[0]), LaterNotes).first
    except msgspec.DecodeError:
        raise Damaged("the record of later notes is damaged") from None


def _append_log(directory: Path, host: str, notes: Sequence[Event]) -> None:
    """Append the lines to session.log if it is there; the database has the notes in any case."""
    if not os.path.isfile(directory / LOG):
        return
    lines = [log_line(note.wall_us, host, note.tag, logged_text(note)) for note in notes]
    try:
        with closing(AppendFile.open(directory / LOG)) as log:
            log.append("".join(lines).encode("utf-8", "replace"))
    except OSError:
        return
