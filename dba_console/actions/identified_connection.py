"""One open connection that acts: deadlines, what its errors mean, and who is at its other end.

The driver's errors end here. Whoever speaks over it hears `StatementFailed` when the server said no, and
`StatementLost` when the connection broke or the server was silent beyond the deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg.sql
from msgspec.structs import replace
from psycopg.pq import TransactionStatus

from dba_console.actions import connection_sql
from dba_console.actions.connection_api import (
    StatementFailed,
    StatementLost,
    StatementMark,
    StatementStopped,
    StatementWatch,
)
from dba_console.actions.deadline_connection import DeadlineConnection, DeadlineExceeded, connect
from dba_console.actions.identity import ServerIdentity
from dba_console.clock import Clock
from dba_console.errors import Refused
from dba_console.probes.postgres.connect_errors import ConnectFailed
from dba_console.redact import redact
from dba_console.sanitize import clean

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
            [row] = self.connection.execute(connection_sql.IDENTITY).fetchall()
            control = self.connection.execute(connection_sql.CONTROL_DATA).fetchone() if self._reads_control else None
        self.backend = int(row["pid"])
        return connection_sql.make_identity(row, control)

    def identify(self, application: str, session_parameters: Mapping[str, str]) -> None:
        """Find out who answers, and set what is kept for the run."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [may] = self.connection.execute(connection_sql.MAY_READ_CONTROL).fetchall()
            self._reads_control = bool(may["may"])
            self.identity = self.read_identity()
            started = next(
                iter(self.connection.execute(connection_sql.BACKEND_START).fetchall()), {"backend_start": None}
            )
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
            self.connection.execute(connection_sql.SET_TIMEOUTS, limits)

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
            backend_start_us=connection_sql.to_wall_us(backend_start) if direct and backend_start is not None else 0,
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
