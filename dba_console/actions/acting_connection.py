"""The second connection: opened on demand, identified before each act, bounded in everything it does.

Each statement that changes has a transaction of its own, begun with the question who answers, so that what was
identified and what is changed are the same backend, also behind a pooler. Its transaction id is written down before
COMMIT is sent: the end of a COMMIT that nobody saw can be asked for afterwards (`pg_xact_status`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from dba_console.actions import connection_sql
from dba_console.actions.connection_api import (
    Params,
    StatementFailed,
    StatementLost,
    StatementMark,
    StatementResult,
    StatementWatch,
)
from dba_console.actions.deadline_connection import CANCEL_TIMEOUT_S
from dba_console.actions.identified_connection import SHORT_TIMEOUT_S, IdentifiedConnection, open_identified
from dba_console.actions.identity import STANDBY, ServerIdentity, restart_since, server_mismatch
from dba_console.actions.read_query import MAX_ROWS, read_rows
from dba_console.clock import SYSTEM, Clock
from dba_console.errors import Refused

T = TypeVar("T")

LOCK_TIMEOUT_S = 2.0
"""Where nothing else is said: who waits for a lock on a relation has everybody else wait behind it."""
COMMIT_TIMEOUT_S = 30.0
"""COMMIT may wait for a synchronous standby. Beyond this its end is unknown, which is a state of its own."""


class ServerRestarted(Refused):
    """It is the same server, but it was started anew since: whoever asks may be told and say that it is meant."""


class ActingConnection:
    """Implements `ServerConnection`. Used by one thread; `close` it."""

    def __init__(
        self,
        conninfo: str,
        *,
        planned: ServerIdentity | None = None,
        application: str = "dba-console:acting",
        on_mark: Callable[[StatementMark], None] = lambda mark: None,
        database: str | None = None,
        connect_timeout_s: float = 3.0,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock = SYSTEM,
    ) -> None:
        self._conninfo, self._clock = conninfo, clock
        self.planned = planned
        """Whom to act on; None until known. What it is not is refused."""
        self.application = application
        """Set anew for each block; the server is told with the next statement."""
        self.on_mark = on_mark
        """Writes the mark down, durably. What it raises stops the act before it takes effect."""
        self.commit_timeout_s: float | None = COMMIT_TIMEOUT_S
        self._database, self._connect_timeout_s, self._lock_timeout_s = database, connect_timeout_s, lock_timeout_s
        self._session_parameters: dict[str, str] = {}
        self._by_database: dict[str, ActingConnection] = {}
        self._open: IdentifiedConnection | None = None

    def __repr__(self) -> str:
        return f"Operator({self.application!r})"  # the connection string may hold a password

    # -- what actions use ----------------------------------------------------------------------------------------

    def rows(self, sql: str, params: Params = None, *, timeout_s: float = SHORT_TIMEOUT_S) -> list[dict[str, Any]]:
        return list(self.query(sql, params, timeout_s=timeout_s).rows)

    def query(
        self, sql: str, params: Params = None, *, timeout_s: float = SHORT_TIMEOUT_S, limit: int = MAX_ROWS
    ) -> StatementResult:
        def once(open_: IdentifiedConnection) -> StatementResult:
            with open_.rollback_on_error(), open_.deadline(timeout_s + CANCEL_TIMEOUT_S):
                open_.connection.begin("BEGIN READ ONLY")
                open_.set_timeouts(timeout_s, self._lock_timeout_s, local=True)
                result = read_rows(open_.connection, sql, params, limit)
                open_.connection.execute("ROLLBACK")
                return result

        return self._retry_once(once)

    def execute(
        self, sql: str, params: Params = None, *, timeout_s: float | None = None, transaction: bool = True
    ) -> int:
        return self.execute_change(sql, params, timeout_s=timeout_s, transaction=transaction).count

    def execute_change(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float | None = None,
        lock_timeout_s: float | None = None,
        transaction: bool = True,
        watch: StatementWatch | None = None,
    ) -> StatementResult:
        lock_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s
        deadline_s = None if timeout_s is None else timeout_s + 2 * CANCEL_TIMEOUT_S
        open_ = self._retry_once(lambda open_: self._begin_change(open_, transaction))
        with open_.rollback_on_error():
            open_.warnings.clear()
            open_.set_timeouts(timeout_s, lock_s, local=transaction)
            if not transaction:
                self.on_mark(open_.mark)
            # What breaks off within its transaction cannot be committed; what has none may have happened.
            with open_.watched(watch), open_.deadline(deadline_s, None if transaction else open_.mark):
                cursor = open_.connection.execute(sql.encode(), params)
            rows = cursor.fetchall() if cursor.description is not None else []
            columns = tuple(column.name for column in cursor.description or ())
            if transaction:
                self._commit(open_)
            return StatementResult(
                tuple(rows), max(cursor.rowcount, 0), columns, tag=cursor.statusmessage or "",
                warnings=tuple(open_.warnings),
            )  # fmt: skip

    def for_database(self, database: str) -> ActingConnection:
        if database == self._database or (self._open is not None and database == self._open.identity.database):
            return self
        if database not in self._by_database:
            self._by_database[database] = self._clone(database)
        other = self._by_database[database]
        other.planned, other.application = self.planned, self.application
        return other

    def open_another(self) -> ActingConnection:
        return self._clone(self._database)

    def read_identity(self) -> ServerIdentity:
        """Who answers now. Raises ConnectError where nobody does."""
        return self._retry_once(lambda open_: open_.read_identity())

    def direct(self) -> bool:
        """Whether no pooler stands between. Raises ConnectError where nobody answers."""
        return self._retry_once(lambda open_: open_.connection.direct)

    def set_parameter(self, name: str, value: str) -> None:
        def once(open_: IdentifiedConnection) -> None:
            open_.refuse_pooled("what is set for this run would be handed to others")
            with open_.rollback_on_error():
                open_.set_parameter(name, value)

        self._retry_once(once)
        self._session_parameters[name] = value

    def reset_parameter(self, name: str) -> None:
        def once(open_: IdentifiedConnection) -> None:
            with open_.rollback_on_error():
                open_.reset_parameter(name)

        self._retry_once(once)
        self._session_parameters.pop(name, None)

    @property
    def mark(self) -> StatementMark:
        """Of the open connection, without a transaction id; empty where none is open."""
        return StatementMark() if self._open is None else self._open.mark

    def close(self) -> None:
        for other in self._by_database.values():
            other.close()
        self._by_database.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- inside --------------------------------------------------------------------------------------------------

    def _retry_once(self, once: Callable[[IdentifiedConnection], T]) -> T:
        """Do what may be done twice; over a new connection where the one that was open turns out to be gone."""
        was_open = self._open is not None
        try:
            return once(self._ensure_open())
        except StatementLost:
            if not was_open:
                raise
        return once(self._ensure_open())

    def _ensure_open(self) -> IdentifiedConnection:
        """The open connection, or a new one. Raises ConnectError."""
        if self._open is not None and self._open.is_closed:
            self._open.close()
            self._open = None
        if self._open is None:
            self._open = open_identified(
                self._conninfo,
                application=self.application,
                database=self._database,
                session_parameters=self._session_parameters,
                timeout_s=self._connect_timeout_s,
                clock=self._clock,
            )
        if self._open.mark.application != self.application:
            with self._open.rollback_on_error():
                self._open.set_application_name(self.application)
        return self._open

    def _clone(self, database: str | None) -> ActingConnection:
        return ActingConnection(
            self._conninfo,
            planned=self.planned,
            application=self.application,
            on_mark=lambda mark: self.on_mark(mark),
            database=database,
            connect_timeout_s=self._connect_timeout_s,
            lock_timeout_s=self._lock_timeout_s,
            clock=self._clock,
        )

    def _begin_change(self, open_: IdentifiedConnection, transaction: bool) -> IdentifiedConnection:
        """The connection, identified, in a transaction where one is wanted. Raises Refused."""
        with open_.rollback_on_error(), open_.deadline(SHORT_TIMEOUT_S):
            if transaction:
                open_.connection.begin("BEGIN" if open_.identity.role == STANDBY else "BEGIN READ WRITE")
            now = open_.read_identity()
            if self.planned is not None:
                refuse_other_server(self.planned, now)
            if not transaction:
                open_.refuse_pooled("what runs in no transaction may end on another connection than it began on")
        return open_

    def _commit(self, open_: IdentifiedConnection) -> None:
        """Write the transaction id down, then COMMIT."""
        if not open_.in_transaction():
            raise StatementFailed(
                "the statement ended its transaction itself; what it did before that stays",
                hint="a change may hold no COMMIT or ROLLBACK of its own; transaction=no is for what cannot be in one",
            )
        with open_.deadline(SHORT_TIMEOUT_S):
            [row] = open_.connection.execute(connection_sql.XID).fetchall()
        mark = None if row["xid"] is None else replace(open_.mark, xid=int(row["xid"]))
        if mark is not None:
            self.on_mark(mark)
        try:
            with open_.deadline(self.commit_timeout_s, mark):
                open_.connection.execute("COMMIT")
        except StatementLost:
            if mark is not None:
                raise
            # Nothing was to be committed: what the statement did had its effect when it was executed.


def refuse_other_server(planned: ServerIdentity, now: ServerIdentity) -> None:
    """Raises Refused where it is another server, Restarted where it is the same one started anew."""
    if message := server_mismatch(planned, now):
        raise Refused(message, hint="nothing was done; begin a run anew on the server that is meant")
    if message := restart_since(planned, now):
        raise ServerRestarted(message, hint="go on only if that restart was meant")
