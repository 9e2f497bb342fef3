"""The connection for changes, separate from the read-only one: opened on demand, with a deadline on every call.

Each statement that changes runs in its own transaction, which first identifies the server, so that the identified and
the changed backend are the same, also behind a pooler. The transaction id is recorded before COMMIT is sent: if the
answer to COMMIT is lost, `pg_xact_status` gives the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from dba_console.actions.deadline_connection import CANCEL_TIMEOUT_S, SHORT_TIMEOUT_S, DeadlineConnection
from dba_console.actions.identity import STANDBY, ServerIdentity, restart_since, server_mismatch
from dba_console.actions.query_connection import LOCK_TIMEOUT_S, QueryConnection
from dba_console.actions.statement_results import (
    Params,
    StatementFailed,
    StatementLost,
    StatementMark,
    StatementResult,
    StatementWatch,
)
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import Refused

XID = b"SELECT pg_catalog.pg_current_xact_id_if_assigned()::text AS xid"
COMMIT_TIMEOUT_S = 30.0
"""COMMIT may wait for a synchronous standby. After this time its outcome is unknown."""


class ServerRestarted(Refused):
    """The same server, but restarted since the run was planned; the operator may confirm that this was intentional."""


class ActingConnection(QueryConnection):
    """Changes a server, on which it may also read."""

    def __init__(
        self,
        conninfo: str,
        *,
        application: str = "dba-console:acting",
        planned: ServerIdentity | None = None,
        on_mark: Callable[[StatementMark], None] = lambda mark: None,
        connect_timeout_s: float = 3.0,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(
            conninfo,
            application=application,
            connect_timeout_s=connect_timeout_s,
            lock_timeout_s=lock_timeout_s,
            clock=clock,
        )
        self.planned = planned
        """The server to act on; None until known. Any other server is refused."""
        self.on_mark = on_mark
        """Records the mark durably. An exception here stops the change before it takes effect."""
        self.commit_timeout_s: float | None = COMMIT_TIMEOUT_S

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
        """Execute one statement that changes, only on the server the run was started on.

        `timeout_s` None: no limit. `watch` is called with the pid of the backend while the statement runs. Raises
        `Refused` if another server answers, and as `QueryConnection`.
        """
        lock_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s
        deadline_s = None if timeout_s is None else timeout_s + 2 * CANCEL_TIMEOUT_S
        open_ = self._retry_once(lambda open_: self._begin_change(open_, transaction))
        with open_.rollback_on_error():
            open_.warnings.clear()
            open_.set_timeouts(timeout_s, lock_s, local=transaction)
            if not transaction:
                self.on_mark(open_.mark)
            # A statement that breaks off inside its transaction cannot commit; outside one it may have taken effect.
            with open_.watched(watch), open_.deadline(deadline_s, None if transaction else open_.mark):
                cursor = open_.execute(sql.encode(), params)
            rows = cursor.fetchall() if cursor.description is not None else []
            columns = tuple(column.name for column in cursor.description or ())
            if transaction:
                self._commit(open_)
            return StatementResult(
                tuple(rows), max(cursor.rowcount, 0), columns, tag=cursor.statusmessage or "",
                warnings=tuple(open_.warnings),
            )  # fmt: skip

    def for_database(self, database: str) -> Self:
        other = super().for_database(database)
        other.planned, other.on_mark = self.planned, self.on_mark
        return other

    def set_parameter(self, name: str, value: str) -> None:
        """Set a parameter for every later statement of this connection, also after a reconnect."""

        def once(open_: DeadlineConnection) -> None:
            open_.refuse_pooled("a session parameter of this run would also affect other clients")
            with open_.rollback_on_error():
                open_.set_parameter(name, value)

        self._retry_once(once)
        self._session_parameters[name] = value

    def reset_parameter(self, name: str) -> None:
        """Reset a parameter, also for later reconnects."""

        def once(open_: DeadlineConnection) -> None:
            with open_.rollback_on_error():
                open_.reset_parameter(name)

        self._retry_once(once)
        self._session_parameters.pop(name, None)

    def _begin_change(self, open_: DeadlineConnection, transaction: bool) -> DeadlineConnection:
        """Identify the server, and begin a transaction if requested. Raises Refused."""
        with open_.rollback_on_error(), open_.deadline(SHORT_TIMEOUT_S):
            if transaction:
                open_.begin("BEGIN" if open_.identity.role == STANDBY else "BEGIN READ WRITE")
            now = open_.read_identity()
            if self.planned is not None:
                refuse_other_server(self.planned, now)
            if not transaction:
                open_.refuse_pooled("a statement outside a transaction may run on another backend than the checked one")
        return open_

    def _commit(self, open_: DeadlineConnection) -> None:
        """Record the transaction id, then COMMIT."""
        if not open_.in_transaction():
            raise StatementFailed(
                "the statement ended its transaction itself; its changes before that remain",
                hint="remove COMMIT and ROLLBACK from the change; use transaction=no if it cannot run in a transaction",
            )
        with open_.deadline(SHORT_TIMEOUT_S):
            [row] = open_.execute(XID).fetchall()
        mark = None if row["xid"] is None else replace(open_.mark, xid=int(row["xid"]))
        if mark is not None:
            self.on_mark(mark)
        try:
            with open_.deadline(self.commit_timeout_s, mark):
                open_.execute("COMMIT")
        except StatementLost:
            if mark is not None:
                raise
            # No transaction id, so nothing to commit: any effect happened during execution.


def refuse_other_server(planned: ServerIdentity, now: ServerIdentity) -> None:
    """Raise Refused if it is another server, ServerRestarted if it is the same server after a restart."""
    if message := server_mismatch(planned, now):
        raise Refused(message, hint="nothing was changed; start a new run against the intended server")
    if message := restart_since(planned, now):
        raise ServerRestarted(message, hint="continue only if that restart was intentional")
