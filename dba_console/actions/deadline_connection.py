"""A connection of the driver whose every wait has an end: the driver's own would wait as long as the server likes.

The watching connection goes without the driver's classes; this one carries what a runbook's author wrote, so it needs
the driver's knowledge of types. Only the waiting is replaced.
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
"""How often whoever watches a statement is asked while it runs."""
CANCEL_TIMEOUT_S = 5.0
"""For a cancel request to get through, and for the server to obey."""
OVERDUE = 100
"""How often what has arrived is read after the deadline: an answer that waited for us, and not one without end."""
_BACKEND_PID = b"SELECT pg_catalog.pg_backend_pid() AS pid"
_OURS = b"""SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', %b),
       pg_catalog.set_config('datestyle', 'ISO, YMD', %b), pg_catalog.set_config('intervalstyle', 'postgres', %b)"""
_SET_SEARCH_PATH, _SET_LOCAL_SEARCH_PATH = (_OURS.replace(b"%b", local) for local in (b"false", b"true"))
"""Until this is set, the owner of the database decides by its search_path which functions, operators, casts and views
are meant. So no cast and no operator may be in these three. The driver reads times in the style of ISO only."""
_TEXT_TYPE_OIDS = (0, 18, 19, 25, 705, 1042, 1043)
"""Types the driver does not know, char, name, text, unknown, bpchar, varchar (pg_type.dat)."""

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The server did not answer by the deadline; the connection is closed."""


class DeadlineConnection(psycopg.Connection[DictRow]):
    """In autocommit, rows as dictionaries. `deadline_us` is the deadline of everything it does."""

    clock: Clock
    deadline_us: int | None = None
    """None: as long as it takes."""
    watch: Callable[[], bool] | None = None
    """Asked while a statement runs; True has it cancelled, once."""
    cancelling: bool = False
    direct: bool = False
    """No pooler stands between: what is set for the session stays with us."""

    def begin(self, how: LiteralString = "BEGIN") -> None:
        """Begin a transaction in which names mean what PostgreSQL itself means by them."""
        self.execute(how)
        if not self.direct:
            self.execute(_SET_LOCAL_SEARCH_PATH)

    def wait(self, gen: PQGen[T], interval: float = POLL_S, timeout: float | None = None) -> T:
        """Drive the driver's generator to its end. Raises Late at the deadline, and the driver's own errors."""
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
        """Ask the server to cancel what runs. It may not get through: then the deadline decides."""
        self.deadline_us = self.clock.mono_us() + int(2 * CANCEL_TIMEOUT_S * 1e6)
        try:
            self.cancel_safe(timeout=CANCEL_TIMEOUT_S)
        except psycopg.Error:
            pass  # nothing more can be done from here; what runs ends, or is late


def connect(
    conninfo: str, *, application: str, database: str | None, timeout_s: float, clock: Clock
) -> DeadlineConnection:
    """A connection that acts. Raises ConnectFailed; nothing is left open then."""
    overrides = {"application_name": application, "client_encoding": "UTF8"}
    if database is not None:
        overrides["dbname"] = database
    opened = open_connection(monitor_conninfo(resolve_hosts(_parse_conninfo(conninfo)), **overrides), timeout_s, clock)
    try:
        opened.nonblocking = 1
        connection = DeadlineConnection(opened, row_factory=dict_row)
        connection.clock = clock
        connection.autocommit = True
        # Nothing stays prepared: behind a pooler the next transaction may be on another backend.
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
    """Text of any database: another session's statement comes in the encoding of its own database."""

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "replace")


def _parse_conninfo(conninfo: str) -> dict[str, str]:
    """What the operator wrote, as libpq reads it. Raises ConnectFailed without repeating it."""
    try:
        options = psycopg.pq.Conninfo.parse(os.fsencode(conninfo))
    except psycopg.Error:
        raise ConnectFailed("other", "not a connection string that libpq can read") from None
    return {option.keyword.decode(): os.fsdecode(option.val) for option in options if option.val is not None}


# Rows of a statement that only reads: one statement, and no more rows than are wanted.
#
# The text comes from a runbook. By the simple protocol it could be several statements, and one of them could end the
# read-only transaction it runs in. The driver declares cursors and streams rows by the extended protocol, which has
# one.

MAX_ROWS = 10_000
MAX_BYTES = 8 << 20
"""Of text in the rows that are kept: what nobody reads need not fill the memory of whoever watches the server."""
_MAX_BATCH_ROWS = 512
_CURSOR = re.compile(r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/|\()*(?:select|with|values|table)\b", re.I | re.S)
"""What a cursor can be declared for; SHOW and EXPLAIN give few rows and go without one."""


def read_rows(connection: DeadlineConnection, sql: str, params: Params, limit: int = MAX_ROWS) -> StatementResult:
    """The first rows, within a transaction. Raises the driver's errors."""
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
    """A row, then twice as many each time: how wide they are is known before many of them are here."""
    size = 1
    while batch := cursor.fetchmany(size):
        yield batch
        size = min(2 * size, _MAX_BATCH_ROWS)


def _take_rows(batches: Iterable[list[dict[str, Any]]], limit: int) -> tuple[tuple[dict[str, Any], ...], bool]:
    """The rows that are kept, and whether there are more."""
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        for row in batch:
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if len(rows) >= limit or (rows and size > MAX_BYTES):
                return tuple(rows), True
            rows.append(row)
    return tuple(rows), False
