"""The acting connection: a second connection for changes, opened on demand, with a timeout on every call.

Each statement that changes runs in its own transaction, which first identifies the server, so that the identified and
the changed backend are the same, also behind a pooler. The transaction id is recorded before COMMIT is sent: if the
answer to COMMIT is lost, `pg_xact_status` gives the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
import psycopg.sql
from msgspec.structs import replace
from psycopg.pq import TransactionStatus

from dba_console.actions.connection_api import (
    Params,
    StatementFailed,
    StatementLost,
    StatementMark,
    StatementResult,
    StatementStopped,
    StatementWatch,
)
from dba_console.actions.deadline_connection import (
    CANCEL_TIMEOUT_S,
    MAX_ROWS,
    DeadlineConnection,
    DeadlineExceeded,
    connect,
    read_rows,
)
from dba_console.actions.identity import PRIMARY, STANDBY, ServerIdentity, restart_since, server_mismatch
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed

# Statements that identify the server.

IDENTITY = b"""
SELECT pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.pg_postmaster_start_time() AS server_start,
       pg_catalog.current_setting('port')::int4 AS port,
       (SELECT s.setting FROM pg_catalog.pg_settings s WHERE s.name = 'data_directory') AS data_directory,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS address,
       pg_catalog.current_database()::text AS database,
       current_user::text AS "user",
       pg_catalog.pg_backend_pid() AS pid
"""
CONTROL_DATA = b"""
SELECT s.system_identifier,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN coalesce((SELECT r.received_tli FROM pg_catalog.pg_stat_wal_receiver r), c.timeline_id)
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END AS timeline
  FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c
"""
"""As the monitoring connection asks it: pg_control lags behind a promotion until the next checkpoint."""
MAY_READ_CONTROL = b"""
SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
   AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE') AS may
"""
BACKEND_START = b"""
SELECT a.backend_start, a.application_name
  FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a
"""
XID = b"SELECT pg_catalog.pg_current_xact_id_if_assigned()::text AS xid"
SET_TIMEOUTS = b"""
SELECT pg_catalog.set_config('statement_timeout', %(statement)s, %(local)s),
       pg_catalog.set_config('lock_timeout', %(lock)s, %(local)s),
       pg_catalog.set_config('idle_in_transaction_session_timeout', %(idle)s, %(local)s)
"""


def make_identity(row: Mapping[str, Any], control: Mapping[str, Any] | None) -> ServerIdentity:
    """Return the identity from the rows of IDENTITY and CONTROL_DATA."""
    return ServerIdentity(
        # Signed 64-bit in the view, unsigned in pg_controldata.
        system_identifier=None if control is None else str(control["system_identifier"] & 0xFFFF_FFFF_FFFF_FFFF),
        role=STANDBY if row["in_recovery"] else PRIMARY,
        timeline=None if control is None else control["timeline"],
        server_start_us=to_wall_us(row["server_start"]),
        version_num=row["version_num"],
        data_directory=row["data_directory"],
        port=row["port"],
        address=row["address"],
        database=row["database"],
        user=row["user"],
    )


def to_wall_us(when: datetime) -> int:
    """Return microseconds since 1970, without float rounding."""
    since = when - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# One open connection with the identity of its server. It turns the driver's errors into `StatementFailed` (the server
# reported an error) and `StatementLost` (the connection broke, or the deadline passed without an answer).

IDLE_TRANSACTION_S = 60.0
"""idle_in_transaction_session_timeout of our transactions: if the journal's disk hangs or this process is gone, the
server rolls back, so that no session waits for our locks."""
SHORT_TIMEOUT_S = 10.0
"""For the statements about the connection itself."""
_CANCELLED = "57014"
"""query_canceled."""
_MAX_WARNINGS = 10


class IdentifiedConnection:
    """An open connection that knows which server answered. Opened by `open_identified`; not thread-safe."""

    def __init__(self, connection: DeadlineConnection, clock: Clock) -> None:
        self.connection, self._clock = connection, clock
        self.identity = ServerIdentity()
        """Identity when the connection was opened."""
        self.mark = StatementMark()
        """Mark of this connection, without a transaction id."""
        self.backend = 0
        self.warnings: list[str] = []
        self._reads_control = False
        connection.add_notice_handler(self._collect_warning)

    @property
    def is_closed(self) -> bool:
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def safe_search_path(self) -> Iterator[None]:
        """Resolve names in pg_catalog first, also behind a pooler that resets settings between transactions."""
        if self.connection.direct or self.in_transaction():
            yield
            return
        self.connection.begin("BEGIN READ ONLY")
        yield
        self.connection.execute("ROLLBACK")

    def read_identity(self) -> ServerIdentity:
        """Return the identity of the server that answers now."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [row] = self.connection.execute(IDENTITY).fetchall()
            control = self.connection.execute(CONTROL_DATA).fetchone() if self._reads_control else None
        self.backend = int(row["pid"])
        return make_identity(row, control)

    def identify(self, application: str, session_parameters: Mapping[str, str]) -> None:
        """Identify the server, and set the session parameters of the run."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [may] = self.connection.execute(MAY_READ_CONTROL).fetchall()
            self._reads_control = bool(may["may"])
            self.identity = self.read_identity()
            started = next(iter(self.connection.execute(BACKEND_START).fetchall()), {"backend_start": None})
        self.mark = self._make_mark(application, started["backend_start"])
        # From 17 on a role may have a transaction_timeout; a VACUUM or an index build is one long transaction.
        if self.identity.version_num >= 170000 and self.connection.direct:
            self.set_parameter("transaction_timeout", "0")
        for name, value in session_parameters.items():
            self.set_parameter(name, value)

    def set_application_name(self, application: str) -> None:
        self.set_parameter("application_name", application)
        self.mark = replace(self.mark, application=application)

    def set_parameter(self, name: str, value: str) -> None:
        """Set a parameter for the rest of this connection."""
        with self.deadline(SHORT_TIMEOUT_S):
            self.connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))

    def reset_parameter(self, name: str) -> None:
        statement = psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split(".")))
        with self.deadline(SHORT_TIMEOUT_S):
            self.connection.execute(statement)

    def refuse_pooled(self, why: str) -> None:
        """Raise Refused behind a pooler, where the next statement may run on another backend."""
        if not self.connection.direct:
            hint = "start the run with a connection string of the server itself, not of the pooler"
            raise Refused(f"the connection goes through a pooler: {why}", hint=hint)

    def set_timeouts(self, timeout_s: float | None, lock_s: float, *, local: bool) -> None:
        """Set the server's timeouts, for this transaction (`local`) or for the rest of the connection."""
        limits = {"statement": _ms(timeout_s), "lock": _ms(lock_s), "idle": _ms(IDLE_TRANSACTION_S), "local": local}
        with self.deadline(SHORT_TIMEOUT_S):
            self.connection.execute(SET_TIMEOUTS, limits)

    def in_transaction(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.INTRANS

    def roll_back(self) -> None:
        if self.connection.closed or self.connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            with self.deadline(SHORT_TIMEOUT_S):
                self.connection.execute("ROLLBACK")
        except (psycopg.Error, StatementLost):
            self.connection.close()

    @contextmanager
    def deadline(self, timeout_s: float | None, mark: StatementMark | None = None) -> Iterator[None]:
        """Set a deadline; if it passes or the connection breaks, raise StatementLost with `mark`."""
        connection = self.connection
        before = connection.deadline_us
        connection.deadline_us = None if timeout_s is None else self._clock.mono_us() + int(timeout_s * 1e6)
        try:
            yield
        except DeadlineExceeded:
            connection.close()
            raise StatementLost(f"the server did not answer within {timeout_s:g} s", mark=mark) from None
        except psycopg.Error as error:
            # FATAL ends the connection, although the close may not have arrived yet. After COMMIT was sent it is no
            # proof of a rollback: a session that waits for a synchronous standby has committed already.
            if not (self.is_closed or error.diag.severity_nonlocalized in ("FATAL", "PANIC")):
                raise
            connection.close()
            raise StatementLost(f"the connection broke: {server_message(error)}", mark=mark) from None
        finally:
            connection.deadline_us = before

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """On any error, roll back; turn the driver's errors into StatementFailed or StatementStopped."""
        try:
            yield
        except psycopg.Error as error:
            stopped = self.connection.cancelling and error.sqlstate == _CANCELLED
            self.roll_back()
            kind = StatementStopped if stopped else StatementFailed
            raise kind(server_message(error), sqlstate=error.sqlstate, hint=error.diag.message_hint) from None
        except BaseException:
            self.roll_back()
            raise

    @contextmanager
    def watched(self, watch: StatementWatch | None) -> Iterator[None]:
        backend, self.connection.cancelling = self.backend, False
        self.connection.watch = None if watch is None else lambda: watch(backend)
        try:
            yield
        finally:
            self.connection.watch = None

    def _make_mark(self, application: str, backend_start: Any) -> StatementMark:
        direct = self.connection.direct
        return StatementMark(
            system_identifier=self.identity.system_identifier,
            timeline=self.identity.timeline,
            server_start_us=self.identity.server_start_us,
            database=self.identity.database,
            pid=self.backend if direct else 0,
            backend_start_us=to_wall_us(backend_start) if direct and backend_start is not None else 0,
            application=application,
        )

    def _collect_warning(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(redact(clean(notice.message_primary or ""))[:500])


def open_identified(
    conninfo: str,
    *,
    application: str,
    database: str | None,
    session_parameters: Mapping[str, str],
    timeout_s: float,
    clock: Clock,
) -> IdentifiedConnection:
    """Connect, and identify the server. Raises ConnectError, with nothing left open."""
    connection = connect(conninfo, application=application, database=database, timeout_s=timeout_s, clock=clock)
    try:
        conversation = IdentifiedConnection(connection, clock)
        conversation.identify(application, session_parameters)
    except psycopg.Error as error:
        connection.close()
        raise ConnectFailed("other", f"connected, but: {server_message(error)}") from None
    except BaseException:
        connection.close()
        raise
    return conversation


def server_message(error: psycopg.Error) -> str:
    """Return the server's message on one line, without secrets."""
    primary, detail = error.diag.message_primary, error.diag.message_detail
    text = str(error) if primary is None else primary if detail is None else f"{primary}: {detail}"
    return redact(clean(" ".join(text.split())))[:1000]


def _ms(seconds: float | None) -> str:
    """Return milliseconds as text; 0 means no limit."""
    return str(max(1, int(seconds * 1000))) if seconds else "0"


T = TypeVar("T")

LOCK_TIMEOUT_S = 2.0
"""Default lock_timeout: a session that waits for a lock on a relation blocks all later ones behind it."""
COMMIT_TIMEOUT_S = 30.0
"""COMMIT may wait for a synchronous standby. After this time its outcome is unknown."""


class ServerRestarted(Refused):
    """The same server, but restarted since the run was planned; the operator may confirm that this was intentional."""


class ActingConnection:
    """Implements `ServerConnection`. Not thread-safe; the caller closes it."""

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
        """The server to act on; None until known. Any other server is refused."""
        self.application = application
        """application_name, set for each block; sent with the next statement."""
        self.on_mark = on_mark
        """Records the mark durably. An exception here stops the change before it takes effect."""
        self.commit_timeout_s: float | None = COMMIT_TIMEOUT_S
        self._database, self._connect_timeout_s, self._lock_timeout_s = database, connect_timeout_s, lock_timeout_s
        self._session_parameters: dict[str, str] = {}
        self._by_database: dict[str, ActingConnection] = {}
        self._open: IdentifiedConnection | None = None

    def __repr__(self) -> str:
        return f"ActingConnection({self.application!r})"  # the connection string may hold a password

    # -- ServerConnection ----------------------------------------------------------------------------------------

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
            # A statement that breaks off inside its transaction cannot commit; outside one it may have taken effect.
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
        """Return the identity of the server that answers now. Raises ConnectError."""
        return self._retry_once(lambda open_: open_.read_identity())

    def direct(self) -> bool:
        """Whether the connection goes through no pooler. Raises ConnectError."""
        return self._retry_once(lambda open_: open_.connection.direct)

    def set_parameter(self, name: str, value: str) -> None:
        def once(open_: IdentifiedConnection) -> None:
            open_.refuse_pooled("a session parameter of this run would also affect other clients")
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
        """The mark of the open connection, without a transaction id; empty if none is open."""
        return StatementMark() if self._open is None else self._open.mark

    def close(self) -> None:
        for other in self._by_database.values():
            other.close()
        self._by_database.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- internals -----------------------------------------------------------------------------------------------

    def _retry_once(self, once: Callable[[IdentifiedConnection], T]) -> T:
        """Run an idempotent call; retry it over a new connection if the open one turns out to be broken."""
        was_open = self._open is not None
        try:
            return once(self._ensure_open())
        except StatementLost:
            if not was_open:
                raise
        return once(self._ensure_open())

    def _ensure_open(self) -> IdentifiedConnection:
        """Return the open connection, or a new one. Raises ConnectError."""
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
        """Identify the server, and begin a transaction if requested. Raises Refused."""
        with open_.rollback_on_error(), open_.deadline(SHORT_TIMEOUT_S):
            if transaction:
                open_.connection.begin("BEGIN" if open_.identity.role == STANDBY else "BEGIN READ WRITE")
            now = open_.read_identity()
            if self.planned is not None:
                refuse_other_server(self.planned, now)
            if not transaction:
                open_.refuse_pooled("a statement outside a transaction may run on another backend than the checked one")
        return open_

    def _commit(self, open_: IdentifiedConnection) -> None:
        """Record the transaction id, then COMMIT."""
        if not open_.in_transaction():
            raise StatementFailed(
                "the statement ended its transaction itself; its changes before that remain",
                hint="remove COMMIT and ROLLBACK from the change; use transaction=no if it cannot run in a transaction",
            )
        with open_.deadline(SHORT_TIMEOUT_S):
            [row] = open_.connection.execute(XID).fetchall()
        mark = None if row["xid"] is None else replace(open_.mark, xid=int(row["xid"]))
        if mark is not None:
            self.on_mark(mark)
        try:
            with open_.deadline(self.commit_timeout_s, mark):
                open_.connection.execute("COMMIT")
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
