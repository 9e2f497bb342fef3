"""The tables of `session.db`, and how its one writer opens it.

WAL with synchronous=NORMAL: every commit survives the death of the program; the last ones may be lost with the host.
The file is also for plain sqlite3: the views `events`, `steps`, `findings` and `lines` need nothing of ours.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from dba_console.session.layout import APPLICATION_ID
from dba_console.session.meta import FORMAT, SessionMeta

WAL_PAGES = 500
"""Pages in the write-ahead log at which it is folded back (2 MB): some two minutes of samples at 1 Hz."""
WAL_BYTES = 4 << 20

TABLES = frozenset(("meta", "blocks", "block_data", "block_points", "tail", "gaps", "journal", "output"))
"""Tables of a session; what else there is are views."""
_TIME = "strftime('%Y-%m-%dT%H:%M:%f', wall_us / 1e6, 'unixepoch') || 'Z'"

_OF_DETAILS = "CASE WHEN json_valid(details) THEN json_extract(details, '$.{}') END"

_TABLES = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS blocks (
    first_seq INTEGER PRIMARY KEY, samples INTEGER, first_us INTEGER, last_us INTEGER, bytes INTEGER);
CREATE TABLE IF NOT EXISTS block_data (first_seq INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS block_points (first_seq INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS tail (seq INTEGER PRIMARY KEY, wall_us INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS gaps (
    from_us INTEGER, to_us INTEGER, samples INTEGER, reason TEXT);
CREATE TABLE IF NOT EXISTS journal (
    seq INTEGER PRIMARY KEY, wall_us INTEGER, mono_us INTEGER, kind TEXT, tag TEXT, severity TEXT, who TEXT,
    occurred_us INTEGER, text TEXT, details TEXT, hash TEXT);
CREATE TABLE IF NOT EXISTS output (
    wall_us INTEGER, tag TEXT, text TEXT, stream TEXT, run TEXT, block TEXT, execution INTEGER);
CREATE VIEW IF NOT EXISTS events AS
    SELECT seq, {_TIME} AS time, kind, tag, severity, who, text, details FROM journal;
CREATE VIEW IF NOT EXISTS steps AS
    SELECT seq, {_TIME} AS time, coalesce({_OF_DETAILS.format("step")}, tag) AS step,
        coalesce({_OF_DETAILS.format("state")}, substr(kind, 6)) AS state, who, text, details,
        {_OF_DETAILS.format("run")} AS run
    FROM journal WHERE kind LIKE 'step.%';
CREATE VIEW IF NOT EXISTS findings AS
    SELECT seq, {_TIME} AS time, substr(kind, 9) AS state, severity, text, details
    FROM journal WHERE kind LIKE 'finding.%';
CREATE VIEW IF NOT EXISTS lines AS
    SELECT {_TIME} AS time, tag, text FROM (
        SELECT wall_us, seq, tag, text FROM journal UNION ALL SELECT wall_us, rowid, tag, text FROM output)
    ORDER BY wall_us, seq;
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """A connection that commits only when told to. Raises sqlite3.Error."""
    # Made by the thread that starts the recording, used by the writer alone from then on.
    connection = sqlite3.connect(path, isolation_level=None, timeout=2.0, check_same_thread=False)
    for pragma in (
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
    """The tables, views and meta of a new session. Raises sqlite3.Error."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={FORMAT}")
    connection.executescript("BEGIN IMMEDIATE;" + _TABLES + "COMMIT;")
    rows = [(key, None if value is None else str(value)) for key, value in msgspec.structs.asdict(meta).items()]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
    connection.execute("COMMIT")
    # The header must be in the file itself, not only in its log: it is how the session is known to be ours.
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
