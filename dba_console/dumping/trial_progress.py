"""How far a trial dump is: which tables it began, which sessions copy what, who waits behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from dba_console.dumping.dump_tables import DumpTable
from dba_console.dumping.server_connection import ReadOnlyConnection

_TABLE_STARTED = re.compile(r'dumping contents of table "((?:[^\n]|\n(?!pg_dump: ))*?)"\n', re.S)
"""src/bin/pg_dump/pg_dump.c, dumpTableData_copy: schema and name are not quoted there, and may hold line ends."""
_SMALL = 4 << 20
"""Bytes; a table of this size may come and go between two looks."""

_COPIES = """
select a.pid, p.relid::bigint, p.tuples_processed, p.bytes_processed
from pg_stat_activity a left join pg_stat_progress_copy p on p.pid = a.pid where a.application_name = %s
"""
_SESSIONS = (
    "select a.pid, null::bigint, null::bigint, null::bigint from pg_stat_activity a where a.application_name = %s"
)
_WAITING = """
select w.pid from pg_locks w where not w.granted and w.mode = 'AccessExclusiveLock' and w.locktype = 'relation'
  and exists (select 1 from pg_locks h where h.granted and h.pid = any(%s) and h.locktype = 'relation'
              and h.database = w.database and h.relation = w.relation) limit 1
"""


class TableCopy(NamedTuple):
    """A table under way."""

    oid: int
    rows: int
    bytes: int


class CopySessions(NamedTuple):
    """What its sessions do."""

    backends: tuple[int, ...]
    running: tuple[TableCopy, ...]
    waiting_pid: int | None
    """Somebody who waits for an exclusive lock on a table it holds; None: nobody."""


def read_copies(server: ReadOnlyConnection, tag: str) -> CopySessions:
    """The sessions of that application name. Raises ConsoleError where the server does not answer."""
    rows = server.rows(_COPIES if server.major >= 14 else _SESSIONS, (tag,))
    backends = tuple(int(row[0]) for row in rows)
    waiting = server.rows(_WAITING, (list(backends),)) if backends else []
    running = tuple(TableCopy(int(row[1]), int(row[2]), int(row[3])) for row in rows if row[1])
    return CopySessions(backends, running, int(waiting[0][0]) if waiting else None)


class TrialProgress:
    """Bytes of tables done, of tables under way as far as their rows are counted."""

    def __init__(self, tables: Sequence[DumpTable], jobs: int) -> None:
        self._by_name = {f"{table.schema}.{table.name}": table for table in tables}
        self._by_oid = {table.oid: table for table in tables}
        self._jobs = jobs
        self.total = float(sum(table.size for table in tables))
        self.done = 0.0
        self.first_table_us: int | None = None
        """When the first table was begun."""
        self.busy_done = self.busy_s = 0.0
        """What was done, and how long it was, while each job had a table."""
        self._started_tables: set[int] = set()
        self._copied_tables: set[int] = set()
        self._running: dict[int, float] = {}
        self._gone = 0.0
        """Bytes of tables that are done."""
        self._rest = ""

    def add_stderr(self, text: str, now_us: int) -> None:
        """Take in what pg_dump says."""
        self._rest += text
        end = 0
        for match in _TABLE_STARTED.finditer(self._rest):
            end = match.end()
            table = self._by_name.get(match[1])
            if table is not None:
                self._started_tables.add(table.oid)
            if self.first_table_us is None:
                self.first_table_us = now_us
        self._rest = self._rest[max(end, len(self._rest) - 65536) :]

    def add_copies(self, copies: CopySessions, now_us: int) -> None:
        """Take in what its sessions do now."""
        running = {copy.oid: self._bytes_done(copy) for copy in copies.running if copy.oid in self._by_oid}
        self._copied_tables |= set(running)
        over = {
            oid
            for oid in self._started_tables - set(running)
            if oid in self._copied_tables or self._by_oid[oid].size < _SMALL
        }
        self.done = max(self.done, float(sum(self._by_oid[oid].size for oid in over)) + sum(running.values()))
        if self.first_table_us is not None and self._all_busy(len(running)):
            self.busy_done, self.busy_s = self.done, (now_us - self.first_table_us) / 1e6

    def finish(self, now_us: int) -> None:
        """It ended well: everything is done."""
        self.done = self.total
        if self.first_table_us is not None and self.busy_s == 0:
            self.busy_done, self.busy_s = self.total, max(1e-3, (now_us - self.first_table_us) / 1e6)

    def _all_busy(self, running: int) -> bool:
        return running >= min(self._jobs, len(self._by_oid)) or len(self._started_tables) < len(self._by_oid)

    def _bytes_done(self, copy: TableCopy) -> float:
        """Bytes of a table under way that are done: by its rows where their number is known, else by what was sent."""
        table = self._by_oid[copy.oid]
        if table.rows:
            return table.size * min(1.0, copy.rows / table.rows)
        return float(min(table.size, copy.bytes))
