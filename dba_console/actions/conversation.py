"""One open connection that acts: deadlines, what its errors mean, and who is at its other end.

The driver's errors end here. Whoever speaks over it hears `StatementFailed` when the server said no, and `Lost` when
the connection broke or the server was silent beyond the deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg.sql
from msgspec.structs import replace
from psycopg.pq import TransactionStatus

from dba_console.actions import sql
from dba_console.actions.bounded import Bounded, Late, connect
from dba_console.actions.identity import Identity
from dba_console.actions.link import Lost, Mark, StatementFailed, Stopped, Watch
from dba_console.clock import Clock
from dba_console.errors import Refused
from dba_console.harmless import clean
from dba_console.probes.postgres.failures import ConnectFailed
from dba_console.redact import redact

IDLE_S = 60.0
"""A transaction of ours that says nothing for so long is rolled back by the server: the journal's disk hangs, or we are
gone, and nobody else shall wait for our locks."""
SHORT_S = 10.0
"""For the statements about the connection itself."""
_CANCELLED = "57014"
"""query_canceled."""
_MOST_WARNINGS = 10


class Conversation:
    """Opened by `begin`. Used by one thread."""

    def __init__(self, connection: Bounded, clock: Clock) -> None:
        self.connection, self._clock = connection, clock
        self.identity = Identity()
        """As it was when the connection was opened."""
        self.mark = Mark()
        """Of this connection, without a transaction id."""
        self.backend = 0
        self.warnings: list[str] = []
        self._reads_control = False
        connection.add_notice_handler(self._hear)

    @property
    def over(self) -> bool:
        return self.connection.closed or self.connection.broken

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def own_names(self) -> Iterator[None]:
        """Names mean what PostgreSQL means by them, also where a pooler forgets between two transactions."""
        if self.connection.direct or self.in_transaction():
            yield
            return
        self.connection.begin("BEGIN READ ONLY")
        yield
        self.connection.execute("ROLLBACK")

    def who(self) -> Identity:
        """Who answers now."""
        with self.within(SHORT_S), self.own_names():
            [row] = self.connection.execute(sql.WHO).fetchall()
            control = self.connection.execute(sql.CONTROL).fetchone() if self._reads_control else None
        self.backend = int(row["pid"])
        return sql.who(row, control)

    def greet(self, application: str, kept: Mapping[str, str]) -> None:
        """Find out who answers, and set what is kept for the run."""
        with self.within(SHORT_S), self.own_names():
            [may] = self.connection.execute(sql.MAY_READ_CONTROL).fetchall()
            self._reads_control = bool(may["may"])
            self.identity = self.who()
            started = next(iter(self.connection.execute(sql.STARTED).fetchall()), {"backend_start": None})
        self.mark = self._marked(application, started["backend_start"])
        # From 17 on a role may have one; a VACUUM or an index build is one transaction, and takes what it takes.
        if self.identity.version_num >= 170000 and self.connection.direct:
            self.set("transaction_timeout", "0")
        for name, value in kept.items():
            self.set(name, value)

    def rename(self, application: str) -> None:
        self.set("application_name", application)
        self.mark = replace(self.mark, application=application)

    def set(self, name: str, value: str) -> None:
        """For the rest of this connection."""
        with self.within(SHORT_S):
            self.connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))

    def reset(self, name: str) -> None:
        statement = psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split(".")))
        with self.within(SHORT_S):
            self.connection.execute(statement)

    def refuse_pooled(self, why: str) -> None:
        """Raises Refused where what comes next may go to another backend."""
        if not self.connection.direct:
            hint = "begin the run with a connection string that leads to the server itself"
            raise Refused(f"a pooler stands between: {why}", hint=hint)

    def limit(self, timeout_s: float | None, lock_s: float, *, local: bool) -> None:
        """The server's own limits, for this transaction or for the rest of the connection."""
        limits = {"statement": _ms(timeout_s), "lock": _ms(lock_s), "idle": _ms(IDLE_S), "local": local}
        with self.within(SHORT_S):
            self.connection.execute(sql.LIMITS, limits)

    def in_transaction(self) -> bool:
        return self.connection.info.transaction_status == TransactionStatus.INTRANS

    def roll_back(self) -> None:
        if self.connection.closed or self.connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            with self.within(SHORT_S):
                self.connection.execute("ROLLBACK")
        except (psycopg.Error, Lost):
            self.connection.close()

    @contextmanager
    def within(self, timeout_s: float | None, mark: Mark | None = None) -> Iterator[None]:
        """A deadline; a connection that breaks or is late is Lost, with the mark of what may have taken effect."""
        connection = self.connection
        before = connection.until_us
        connection.until_us = None if timeout_s is None else self._clock.mono_us() + int(timeout_s * 1e6)
        try:
            yield
        except Late:
            connection.close()
            raise Lost(f"the server did not answer within {timeout_s:g} s", mark=mark) from None
        except psycopg.Error as error:
            # A FATAL ends the connection, though it may not have been seen closing yet. After COMMIT was sent it tells
            # nothing: who waits for a synchronous standby has committed already.
            if not (self.over or error.diag.severity_nonlocalized in ("FATAL", "PANIC")):
                raise
            connection.close()
            raise Lost(f"the connection broke: {told(error)}", mark=mark) from None
        finally:
            connection.until_us = before

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Whatever goes wrong, no transaction is left open; the driver's errors become those of the link."""
        try:
            yield
        except psycopg.Error as error:
            stopped = self.connection.stopping and error.sqlstate == _CANCELLED
            self.roll_back()
            kind = Stopped if stopped else StatementFailed
            raise kind(told(error), sqlstate=error.sqlstate, hint=error.diag.message_hint) from None
        except BaseException:
            self.roll_back()
            raise

    @contextmanager
    def watched(self, watch: Watch | None) -> Iterator[None]:
        backend, self.connection.stopping = self.backend, False
        self.connection.watch = None if watch is None else lambda: watch(backend)
        try:
            yield
        finally:
            self.connection.watch = None

    def _marked(self, application: str, backend_start: Any) -> Mark:
        direct = self.connection.direct
        return Mark(
            system_identifier=self.identity.system_identifier,
            timeline=self.identity.timeline,
            server_start_us=self.identity.server_start_us,
            database=self.identity.database,
            pid=self.backend if direct else 0,
            backend_start_us=sql.wall_us(backend_start) if direct and backend_start is not None else 0,
            application=application,
        )

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(redact(clean(notice.message_primary or ""))[:500])


def begin(
    conninfo: str,
    *,
    application: str,
    database: str | None,
    kept: Mapping[str, str],
    timeout_s: float,
    clock: Clock,
) -> Conversation:
    """Connect, and find out who answers. Raises ConnectError; nothing is left open then."""
    connection = connect(conninfo, application=application, database=database, timeout_s=timeout_s, clock=clock)
    try:
        conversation = Conversation(connection, clock)
        conversation.greet(application, kept)
    except psycopg.Error as error:
        connection.close()
        raise ConnectFailed("other", f"connected, but: {told(error)}") from None
    except BaseException:
        connection.close()
        raise
    return conversation


def told(error: psycopg.Error) -> str:
    """The server's words on one line, without secrets."""
    primary, detail = error.diag.message_primary, error.diag.message_detail
    text = str(error) if primary is None else primary if detail is None else f"{primary}: {detail}"
    return redact(clean(" ".join(text.split())))[:1000]


def _ms(seconds: float | None) -> str:
    """0 is no limit."""
    return str(max(1, int(seconds * 1000))) if seconds else "0"
