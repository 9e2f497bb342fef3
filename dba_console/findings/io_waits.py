"""Whose statements wait for I/O: sessions that feel it, as against work that is meant to be limited by the disk.

A dump, a bulk load or an index build waits for I/O all its life and so do a hundred short commits a second; neither is
a stall. One that is has statements of ordinary sessions that wait now and have been running for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dba_console.findings.rule_context import RuleContext
from dba_console.frames.connections import ACTIVE, is_client
from dba_console.samples import postgres

_IO_LOCKS = frozenset(("walwrite", "walwritelock", "bufferio", "buffer_io"))
"""Waits for somebody else's I/O: LWLock WALWrite (WALWriteLock to 12), IPC BufferIO (LWLock buffer_io to 13)."""
_TOOLS = ("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "vacuumdb", "reindexdb", "clusterdb")
_BULK = (
    "copy", "create index", "create unique index", "create table", "reindex", "vacuum", "cluster", "analyze",
    "alter table", "refresh", "create database", "drop", "truncate", "checkpoint",
)  # fmt: skip
_BACKGROUND = frozenset(("checkpointer", "background writer", "walwriter", "archiver", "startup", "walsummarizer"))


def waits_for_io(row: postgres.Activity) -> bool:
    """Active, and in a wait for a file or for somebody who is in one."""
    if row.state not in ACTIVE or row.wait_event_type is None:
        return False
    return row.wait_event_type == "IO" or (row.wait_event or "").lower() in _IO_LOCKS


def is_bulk(row: postgres.Activity) -> bool:
    """A tool or a statement that reads or writes for as long as it runs."""
    if row.application.startswith(_TOOLS):
        return True
    return row.query[:40].lstrip().lower().startswith(_BULK)


def count_waiting_sessions(rows: Iterable[postgres.Activity], now_us: int, for_s: float) -> int:
    """Client sessions whose statement waits for I/O and was sent `for_s` seconds ago or earlier."""
    latest = now_us - int(for_s * 1e6)
    return sum(
        waits_for_io(row) and row.query_start is not None and row.query_start <= latest
        and is_client(row) and not is_bulk(row)
        for row in rows
    )  # fmt: skip


def background_or_bulk(situation: RuleContext, pids: Iterable[int]) -> set[int]:
    """Of these processes those nobody waits for: the server's own background, bulk work, the console's probe."""
    found = set()
    for pid in pids:
        row = situation.facts.by_pid.get(pid)
        if row is not None and (row.backend_type in _BACKGROUND or is_bulk(row)):
            found.add(pid)
    return found


def awaited_storage(situation: RuleContext, pids: Iterable[int]) -> Iterator[str]:
    """What PostgreSQL keeps in the files these processes wait for, by the name of their wait event."""
    for pid in pids:
        row = situation.facts.by_pid.get(pid)
        event = "" if row is None or row.wait_event is None else row.wait_event.lower()
        if event.startswith("wal"):
            yield "wal"
        elif event.startswith("buffile"):
            yield "temp"
        elif event.startswith(("datafile", "slru", "relation")):
            yield "data"
