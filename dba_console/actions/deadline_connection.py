"""A psycopg connection with a deadline on every wait; psycopg alone would wait without limit.

The monitoring connection does without psycopg's classes; this one runs the SQL of runbooks and needs psycopg's types.
Only the waiting is replaced.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Callable, Iterable
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.rows import DictRow, dict_row
from psycopg.waiting import Ready, Wait

from dba_console.actions.connection_api import Params, StatementResult
from dba_console.core.clock import Clock
from dba_console.watch.probes.postgres.connect import monitor_conninfo, open_connection, resolve_hosts
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, plain_message

POLL_S = 0.2
"""Interval at which the watch function is called while a statement runs."""
CANCEL_TIMEOUT_S = 5.0
"""Time for a cancel request to arrive, and again for the server to cancel."""
OVERDUE = 100
"""Maximum reads after the deadline: enough for an answer that has arrived already, but not an endless one."""
_BACKEND_PID = b"SELECT pg_catalog.pg_backend_pid() AS pid"
_OURS = b"""SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', %b),
       pg_catalog.set_config('datestyle', 'ISO, YMD', %b), pg_catalog.set_config('intervalstyle', 'postgres', %b)"""
_SET_SEARCH_PATH, _SET_LOCAL_SEARCH_PATH = (_OURS.replace(b"%b", local) for local in (b"false", b"true"))
"""Until this is set, the search_path chosen by the database's owner decides which functions, operators, casts and views
are used. So these three must contain no cast and no operator. psycopg reads times in ISO style only."""
_TEXT_TYPE_OIDS = (0, 18, 19, 25, 705, 1042, 1043)
"""Unknown to psycopg, char, name, text, unknown, bpchar, varchar (pg_type.dat)."""

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The server did not answer by the deadline; the connection is closed."""


class DeadlineConnection(psycopg.Connection[DictRow]):
    """A connection in autocommit, with rows as dictionaries; `deadline_us` limits every call."""

    clock: Clock
    deadline_us: int | None = None
    """None: no limit."""
    watch: Callable[[], bool] | None = None
    """Called while a statement runs; True cancels it, once."""
    cancelling: bool = False
    direct: bool = False
    """The connection goes through no pooler: session parameters affect only us."""

    def begin(self, how: LiteralString = "BEGIN") -> None:
        """Begin a transaction in which names resolve in pg_catalog first."""
        self.execute(how)
        if not self.direct:
            self.execute(_SET_LOCAL_SEARCH_PATH)

    def wait(self, gen: PQGen[T], interval: float = POLL_S, timeout: float | None = None) -> T:
        """Run psycopg's generator to its end. Raises DeadlineExceeded, and psycopg's errors."""
        try:
            wanted = next(gen)
            overdue = 0
            while True:
                ready = self._poll(wanted)
                overdue += self.deadline_us is not None and self.clock.mono_us() >= self.deadline_us
                if ready == Ready.NONE or overdue > OVERDUE:
                    self._check_deadline(gen)
                wanted = gen.send(ready)
        except StopIteration as end:
            value: T = end.value
            return value

    def _poll(self, wanted: Wait) -> Ready:
        poller = select.poll()
        asked = (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
        poller.register(self.pgconn.socket, asked)
        left_us = int(POLL_S * 1e6)
        if self.deadline_us is not None:
            left_us = min(left_us, self.deadline_us - self.clock.mono_us())
        if not (events := poller.poll(max(1, left_us // 1000))):
            return Ready.NONE
        seen = events[0][1]
        ready = (Ready.W if seen & select.POLLOUT else Ready.NONE) | (Ready.R if seen & ~select.POLLOUT else Ready.NONE)
        return Ready(ready)

    def _check_deadline(self, gen: PQGen[Any]) -> None:
        if self.deadline_us is not None and self.clock.mono_us() >= self.deadline_us:
            gen.close()
            self.pgconn.finish()
            raise DeadlineExceeded
        if self.watch is not None and not self.cancelling and self.watch():
            self.cancelling = True
            self._cancel()

    def _cancel(self) -> None:
        """Ask the server to cancel the statement. If the request is lost, the deadline ends the wait."""
        self.deadline_us = self.clock.mono_us() + int(2 * CANCEL_TIMEOUT_S * 1e6)
        try:
            self.cancel_safe(timeout=CANCEL_TIMEOUT_S)
        except psycopg.Error:
            pass  # the statement ends, or the deadline passes


def connect(
    conninfo: str, *, application: str, database: str | None, timeout_s: float, clock: Clock
) -> DeadlineConnection:
    """Open the connection. Raises ConnectFailed, with nothing left open."""
    overrides = {"application_name": application, "client_encoding": "UTF8"}
    if database is not None:
        overrides["dbname"] = database
    opened = open_connection(monitor_conninfo(resolve_hosts(_parse_conninfo(conninfo)), **overrides), timeout_s, clock)
    try:
        opened.nonblocking = 1
        connection = DeadlineConnection(opened, row_factory=dict_row)
        connection.clock = clock
        connection.autocommit = True
        # No prepared statements: behind a pooler the next transaction may run on another backend.
        connection.prepare_threshold = None
        for oid in _TEXT_TYPE_OIDS:
            connection.adapters.register_loader(oid, _TextLoader)
        connection.deadline_us = clock.mono_us() + int(timeout_s * 1e6)
        [backend] = connection.execute(_BACKEND_PID).fetchall()
        connection.direct = backend["pid"] == opened.backend_pid
        if connection.direct:
            connection.execute(_SET_SEARCH_PATH)
        connection.deadline_us = None
    except psycopg.Error as error:
        opened.finish()
        raise ConnectFailed("other", f"connected, but: {plain_message(str(error))}") from None
    except DeadlineExceeded:
        raise ConnectFailed("timeout", f"connected, but no answer to the first query within {timeout_s:g} s") from None
    except BaseException:
        opened.finish()
        raise
    return connection


class _TextLoader(Loader):
    """Loads text of any encoding: another session's statement is in the encoding of its own database."""

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "replace")


def _parse_conninfo(conninfo: str) -> dict[str, str]:
    """Parse the connection string as libpq does. Raises ConnectFailed, which does not quote it."""
    try:
        options = psycopg.pq.Conninfo.parse(os.fsencode(conninfo))
    except psycopg.Error:
        raise ConnectFailed("other", "not a connection string that libpq can read") from None
    return {option.keyword.decode(): os.fsdecode(option.val) for option in options if option.val is not None}


# Rows of a query: one statement, with a limit on rows and bytes.
#
# The SQL comes from a runbook. In the simple protocol it could be several statements, and one of them could end the
# read-only transaction. psycopg declares cursors and streams rows in the extended protocol, which takes one statement.

MAX_ROWS = 10_000
MAX_BYTES = 8 << 20
"""Limit of text in the rows that are kept, to bound the memory of the agent."""
_MAX_BATCH_ROWS = 512
_CURSOR = re.compile(r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/|\()*(?:select|with|values|table)\b", re.I | re.S)
"""Statements a cursor can be declared for; SHOW and EXPLAIN return few rows and need none."""


def read_rows(connection: DeadlineConnection, sql: str, params: Params, limit: int = MAX_ROWS) -> StatementResult:
    """Return the first rows, within a transaction. Raises psycopg's errors."""
    if not _CURSOR.match(sql):
        with connection.cursor() as cursor:
            rows, cut = _take_rows(([row] for row in cursor.stream(sql.encode(), params)), limit)
        return StatementResult(rows, len(rows), tuple(rows[0]) if rows else (), cut=cut)
    with connection.cursor("dba_console_look") as named:
        named.execute(sql.encode(), params)
        columns = tuple(column.name for column in named.description or ())
        rows, cut = _take_rows(_fetch_batches(named), limit)
        return StatementResult(rows, len(rows), columns, cut=cut)


def _fetch_batches(cursor: psycopg.ServerCursor[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Yield one row, then twice as many each time, so that the row width is known before many are in memory."""
    size = 1
    while batch := cursor.fetchmany(size):
        yield batch
        size = min(2 * size, _MAX_BATCH_ROWS)


def _take_rows(batches: Iterable[list[dict[str, Any]]], limit: int) -> tuple[tuple[dict[str, Any], ...], bool]:
    """Return the rows within the limits, and whether the server has more."""
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        for row in batch:
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if len(rows) >= limit or (rows and size > MAX_BYTES):
                return tuple(rows), True
            rows.append(row)
    return tuple(rows), False
