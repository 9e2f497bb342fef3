"""The read-only connection of runs and actions: opened on demand, every query with a deadline.

Each query runs in its own read-only transaction with its own timeouts, also behind a pooler.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self, TypeVar

import psycopg

from dba_console.actions.deadline_connection import (
    CANCEL_TIMEOUT_S,
    MAX_ROWS,
    SHORT_TIMEOUT_S,
    DeadlineConnection,
    connect,
    count_copied_rows,
    read_rows,
    server_message,
)
from dba_console.actions.identity import ServerIdentity
from dba_console.actions.statement_results import Params, StatementLost, StatementMark, StatementResult
from dba_console.core.clock import SYSTEM, Clock
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

T = TypeVar("T")

LOCK_TIMEOUT_S = 2.0
"""Default lock_timeout: a session that waits for a lock on a relation blocks all later ones behind it."""


class QueryConnection:
    """Reads from a server and changes nothing. Not thread-safe; the caller closes it.

    Its methods raise `ConnectError` when there is no connection, `StatementFailed` when the server reported an error,
    `StatementLost` when the connection broke.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        application: str,
        connect_timeout_s: float = 3.0,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock = SYSTEM,
    ) -> None:
        self._conninfo, self._clock = conninfo, clock
        self.application = application
        """application_name, set for each block; sent with the next statement."""
        self._connect_timeout_s, self._lock_timeout_s = connect_timeout_s, lock_timeout_s
        self._database: str | None = None
        """None: the one of the connection string."""
        self._session_parameters: dict[str, str] = {}
        """Set again after a reconnect."""
        self._by_database: dict[str, Self] = {}
        self._open: DeadlineConnection | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.application!r})"  # the connection string may hold a password

    def rows(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float = SHORT_TIMEOUT_S,
        limit: int | None = MAX_ROWS,
    ) -> list[dict[str, Any]]:
        """Return the rows of a query; `limit` None: all of them, whatever memory they take."""
        return list(self.query(sql, params, timeout_s=timeout_s, limit=limit).rows)

    def query(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float = SHORT_TIMEOUT_S,
        limit: int | None = MAX_ROWS,
    ) -> StatementResult:
        """Return the result of a query: one statement, in a read-only transaction it cannot leave."""

        def once(open_: DeadlineConnection) -> StatementResult:
            with open_.rollback_on_error(), open_.deadline(timeout_s + CANCEL_TIMEOUT_S):
                open_.begin("BEGIN READ ONLY")
                open_.set_timeouts(timeout_s, self._lock_timeout_s, local=True)
                result = read_rows(open_, sql, params, limit)
                open_.execute("ROLLBACK")
                return result

        return self._retry_once(once)

    def count_rows(self, schema: str, table: str, *, timeout_s: float) -> int | None:
        """Return the number of rows of a user's table, without those of its children; None if it is not a table.

        The only way to read a user's relation: see `count_copied_rows`.
        """

        def once(open_: DeadlineConnection) -> int | None:
            with open_.rollback_on_error(), open_.deadline(timeout_s + CANCEL_TIMEOUT_S):
                open_.begin("BEGIN READ ONLY")
                open_.set_timeouts(timeout_s, self._lock_timeout_s, local=True)
                found = count_copied_rows(open_, schema, table)
                open_.execute("ROLLBACK")
                return found

        return self._retry_once(once)

    def for_database(self, database: str) -> Self:
        """Return the connection to another database of the same server; cached, closed with this one."""
        if database == self._database or (self._open is not None and database == self._open.identity.database):
            return self
        if database not in self._by_database:
            self._by_database[database] = self.open_another(database)
        other = self._by_database[database]
        other.application = self.application
        return other

    def open_another(self, database: str | None = None) -> Self:
        """Return a new connection, to read while this one is busy; the caller closes it."""
        other = copy(self)
        other._database = database or self._database
        other._session_parameters, other._by_database, other._open = {}, {}, None
        return other

    def read_identity(self) -> ServerIdentity:
        """Return the identity of the server that answers now. Raises ConnectError."""
        if self._open is None:
            return self._ensure_open().identity  # read by the connection that was just opened
        return self._retry_once(lambda open_: open_.read_identity())

    def direct(self) -> bool:
        """Whether the connection goes through no pooler. Raises ConnectError."""
        return self._retry_once(lambda open_: open_.direct)

    @property
    def identity(self) -> ServerIdentity:
        """The server when the connection was opened; empty if none is open."""
        return ServerIdentity() if self._open is None else self._open.identity

    @property
    def mark(self) -> StatementMark:
        """The mark of the open connection, without a transaction id; empty if none is open."""
        return StatementMark() if self._open is None else self._open.mark

    def close(self) -> None:
        """Close the connection. The next statement opens a new one."""
        for other in self._by_database.values():
            other.close()
        self._by_database.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    def _retry_once(self, once: Callable[[DeadlineConnection], T]) -> T:
        """Run an idempotent call; retry it over a new connection if the open one turns out to be broken."""
        was_open = self._open is not None
        try:
            return once(self._ensure_open())
        except StatementLost:
            if not was_open:
                raise
        return once(self._ensure_open())

    def _ensure_open(self) -> DeadlineConnection:
        """Return the open connection, or a new one. Raises ConnectError."""
        if self._open is not None and self._open.closed:
            self._open.close()
            self._open = None
        if self._open is None:
            self._open = self._connect()
        if self._open.mark.application != self.application:
            with self._open.rollback_on_error():
                self._open.set_application_name(self.application)
        return self._open

    def _connect(self) -> DeadlineConnection:
        """Connect, and identify the server. Raises ConnectError, with nothing left open."""
        opened = connect(
            self._conninfo,
            application=self.application,
            database=self._database,
            timeout_s=self._connect_timeout_s,
            clock=self._clock,
        )
        try:
            opened.identify(self.application)
            for name, value in self._session_parameters.items():
                opened.set_parameter(name, value)
        except psycopg.Error as error:
            opened.close()
            raise ConnectFailed("other", f"connected, but: {server_message(error)}") from None
        except BaseException:
            opened.close()
            raise
        return opened
