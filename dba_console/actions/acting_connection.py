"""The second connection: opened on demand, identified before each act, bounded in everything it does.

Each statement that changes has a transaction of its own, begun with the question who answers, so that what was
identified and what is changed are the same backend, also behind a pooler. Its transaction id is written down before
COMMIT is sent: the end of a COMMIT that nobody saw can be asked for afterwards (`pg_xact_status`).
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

# The statements by which the acting connection finds out where it is.

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
"""As the watching connection asks it: pg_control lags behind a promotion until the next checkpoint."""
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
    """The identity that WHO and CONTROL describe."""
    return ServerIdentity(
        # A signed 64-bit number in the view, unsigned in pg_controldata.
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
    """Microseconds since 1970, without the rounding of a float."""
    since = when - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# One open connection that acts: deadlines, what its errors mean, and who is at its other end.
#
# The driver's errors end here. Whoever speaks over it hears `StatementFailed` when the server said no, and
# `StatementLost` when the connection broke or the server was silent beyond the deadline.

IDLE_TRANSACTION_S = 60.0
"""A transaction of ours that says nothing for so long is rolled back by the server: the journal's disk hangs, or we are
gone, and nobody else shall wait for our locks."""
SHORT_TIMEOUT_S = 10.0
"""For the statements about the connection itself."""
_CANCELLED = "57014"
"""query_canceled."""
_MAX_WARNINGS = 10


class IdentifiedConnection:
    """Opened by `open_identified`. Used by one thread."""

    def __init__(self, connection: DeadlineConnection, clock: Clock) -> None:
        self.connection, self._clock = connection, clock
        self.identity = ServerIdentity()
        """As it was when the connection was opened."""
        self.mark = StatementMark()
        """Of this connection, without a transaction id."""
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
        """Names mean what PostgreSQL means by them, also where a pooler forgets between two transactions."""
        if self.connection.direct or self.in_transaction():
            yield
            return
        self.connection.begin("BEGIN READ ONLY")
        yield
        self.connection.execute("ROLLBACK")

    def read_identity(self) -> ServerIdentity:
        """Who answers now."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [row] = self.connection.execute(IDENTITY).fetchall()
            control = self.connection.execute(CONTROL_DATA).fetchone() if self._reads_control else None
        self.backend = int(row["pid"])
        return make_identity(row, control)

    def identify(self, application: str, session_parameters: Mapping[str, str]) -> None:
        """Find out who answers, and set what is kept for the run."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [may] = self.connection.execute(MAY_READ_CONTROL).fetchall()
            self._reads_control = bool(may["may"])
            self.identity = self.read_identity()
            started = next(iter(self.connection.execute(BACKEND_START).fetchall()), {"backend_start": None})
        self.mark = self._make_mark(application, started["backend_start"])
        # From 17 on a role may have one; a VACUUM or an index build is one transaction, and takes what it takes.
        if self.identity.version_num >= 170000 and self.connection.direct:
            self.set_parameter("transaction_timeout", "0")
        for name, value in session_parameters.items():
            self.set_parameter(name, value)

    def set_application_name(self, application: str) -> None:
        self.set_parameter("application_name", application)
        self.mark = replace(self.mark, application=application)

    def set_parameter(self, name: str, value: str) -> None:
        """For the rest of this connection."""
        with self.deadline(SHORT_TIMEOUT_S):
            self.connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))

    def reset_parameter(self, name: str) -> None:
        statement = psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split(".")))
        with self.deadline(SHORT_TIMEOUT_S):
            self.connection.execute(statement)

    def refuse_pooled(self, why: str) -> None:
        """Raises Refused where what comes next may go to another backend."""
        if not self.connection.direct:
            hint = "begin the run with a connection string that leads to the server itself"
            raise Refused(f"a pooler stands between: {why}", hint=hint)

    def set_timeouts(self, timeout_s: float | None, lock_s: float, *, local: bool) -> None:
        """The server's own limits, for this transaction or for the rest of the connection."""
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
        """A deadline; a connection that breaks or is late is Lost, with the mark of what may have taken effect."""
        connection = self.connection
        before = connection.deadline_us
        connection.deadline_us = None if timeout_s is None else self._clock.mono_us() + int(timeout_s * 1e6)
        try:
            yield
        except DeadlineExceeded:
            connection.close()
            raise StatementLost(f"the server did not answer within {timeout_s:g} s", mark=mark) from None
        except psycopg.Error as error:
            # A FATAL ends the connection, though it may not have been seen closing yet. After COMMIT was sent it tells
            # nothing: who waits for a synchronous standby has committed already.
            if not (self.is_closed or error.diag.severity_nonlocalized in ("FATAL", "PANIC")):
                raise
            connection.close()
            raise StatementLost(f"the connection broke: {server_message(error)}", mark=mark) from None
        finally:
            connection.deadline_us = before

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """Whatever goes wrong, no transaction is left open; the driver's errors become those of the link."""
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
    """Connect, and find out who answers. Raises ConnectError; nothing is left open then."""
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
    """The server's words on one line, without secrets."""
    primary, detail = error.diag.message_primary, error.diag.message_detail
    text = str(error) if primary is None else primary if detail is None else f"{primary}: {detail}"
    return redact(clean(" ".join(text.split())))[:1000]


def _ms(seconds: float | None) -> str:
    """0 is no limit."""
    return str(max(1, int(seconds * 1000))) if seconds else "0"


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
            # Nothing was to be committed: what the statement did had its effect when it was executed.


def refuse_other_server(planned: ServerIdentity, now: ServerIdentity) -> None:
    """Raises Refused where it is another server, Restarted where it is the same one started anew."""
    if message := server_mismatch(planned, now):
        raise Refused(message, hint="nothing was done; begin a run anew on the server that is meant")
    if message := restart_since(planned, now):
        raise ServerRestarted(message, hint="go on only if that restart was meant")
