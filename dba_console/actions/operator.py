"""The second connection: opened on demand, identified before each act, bounded in everything it does.

Each statement that changes has a transaction of its own, begun with the question who answers, so that what was
identified and what is changed are the same backend, also behind a pooler. Its transaction id is written down before
COMMIT is sent: the end of a COMMIT that nobody saw can be asked for afterwards (`pg_xact_status`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg.sql
from msgspec.structs import replace
from psycopg.pq import TransactionStatus

from dba_console.actions import sql
from dba_console.actions.bounded import CANCEL_S, Bounded, Late, connect
from dba_console.actions.identity import STANDBY, Identity, other_server, restarted
from dba_console.actions.link import Lost, Mark, Params, Result, StatementFailed, Stopped, Watch
from dba_console.actions.reading import MOST_ROWS, read
from dba_console.clock import SYSTEM, Clock
from dba_console.errors import Refused
from dba_console.harmless import clean
from dba_console.probes.postgres.failures import ConnectFailed
from dba_console.redact import redact

LOCK_TIMEOUT_S = 2.0
"""Where nothing else is said: who waits for a lock on a relation has everybody else wait behind it."""
IDLE_S = 60.0
"""A transaction of ours that says nothing for so long is rolled back by the server: the journal's disk hangs, or we are
gone, and nobody else shall wait for our locks."""
SHORT_S = 10.0
"""For the statements about the connection itself, and for COMMIT beyond what the statement had."""
COMMIT_S = 30.0
"""COMMIT may wait for a synchronous standby. Beyond this its end is unknown, which is a state of its own."""


class Restarted(Refused):
    """It is the same server, but it was started anew since: whoever asks may be told and say that it is meant."""


class Operator:
    """Implements `ServerLink`. Used by one thread; `close` it."""

    def __init__(
        self,
        conninfo: str,
        *,
        planned: Identity | None = None,
        application: str = "dba-console:acting",
        on_mark: Callable[[Mark], None] = lambda mark: None,
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
        self.commit_s: float | None = COMMIT_S
        self._database, self._connect_timeout_s, self._lock_timeout_s = database, connect_timeout_s, lock_timeout_s
        self._kept: dict[str, str] = {}
        self._others: dict[str, Operator] = {}
        self._connection: Bounded | None = None
        self._identity = Identity()
        self._mark = Mark()
        self._pooled = self._reads_control = False
        self._backend = 0
        self._warnings: list[str] = []

    def __repr__(self) -> str:
        return f"Operator({self.application!r})"  # the connection string may hold a password

    # -- what actions use ----------------------------------------------------------------------------------------

    def rows(self, sql: str, params: Params = None, *, timeout_s: float = SHORT_S) -> list[dict[str, Any]]:
        return list(self.look(sql, params, timeout_s=timeout_s).rows)

    def look(self, sql: str, params: Params = None, *, timeout_s: float = SHORT_S, limit: int = MOST_ROWS) -> Result:
        """A connection that was lost meanwhile is opened anew, once."""
        for attempt in (1, 2):
            connection = self._ready()
            try:
                with self._ending(connection), self._within(connection, timeout_s + CANCEL_S):
                    connection.execute("BEGIN READ ONLY")
                    self._limit(connection, timeout_s, self._lock_timeout_s, local=True)
                    result = read(connection, sql, params, limit)
                    connection.execute("ROLLBACK")
                    return result
            except Lost:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def execute(
        self, sql: str, params: Params = None, *, timeout_s: float | None = None, transaction: bool = True
    ) -> int:
        return self.act(sql, params, timeout_s=timeout_s, transaction=transaction).count

    def act(
        self,
        sql: str,
        params: Params = None,
        *,
        timeout_s: float | None = None,
        lock_timeout_s: float | None = None,
        transaction: bool = True,
        watch: Watch | None = None,
    ) -> Result:
        lock_s = self._lock_timeout_s if lock_timeout_s is None else lock_timeout_s
        self._warnings.clear()
        connection = self._begun(transaction)
        with self._ending(connection):
            self._limit(connection, timeout_s, lock_s, local=transaction)
            if not transaction:
                self.on_mark(self._mark)
            mark = None if transaction else self._mark
            with self._watched(connection, watch), self._within(connection, _plus(timeout_s, 2 * CANCEL_S), mark):
                cursor = connection.execute(sql.encode(), params)
            rows = cursor.fetchall() if cursor.description is not None else []
            columns = tuple(column.name for column in cursor.description or ())
            if transaction:
                self._commit(connection)
            return Result(tuple(rows), max(cursor.rowcount, 0), columns, warnings=tuple(self._warnings))

    def to(self, database: str) -> Operator:
        if database == self._identity.database or database == self._database:
            return self
        if database not in self._others:
            self._others[database] = self._another(database)
        other = self._others[database]
        other.planned, other.application = self.planned, self.application
        return other

    def aside(self) -> Operator:
        return self._another(self._database)

    def _another(self, database: str | None) -> Operator:
        return Operator(
            self._conninfo,
            planned=self.planned,
            application=self.application,
            on_mark=lambda mark: self.on_mark(mark),
            database=database,
            connect_timeout_s=self._connect_timeout_s,
            lock_timeout_s=self._lock_timeout_s,
            clock=self._clock,
        )

    def identity(self) -> Identity:
        """Who answers now. Raises ConnectError where nobody does."""
        for attempt in (1, 2):
            connection = self._ready()
            try:
                return self._who(connection)
            except Lost:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def keep(self, name: str, value: str) -> None:
        connection = self._ready()
        self._refuse_pooled("what is set for this run would be handed to others")
        with self._ending(connection), self._within(connection, SHORT_S):
            connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
        self._kept[name] = value

    def forget(self, name: str) -> None:
        connection = self._ready()
        reset = psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split(".")))
        with self._ending(connection), self._within(connection, SHORT_S):
            connection.execute(reset)
        self._kept.pop(name, None)

    @property
    def mark(self) -> Mark:
        """Of the open connection, without a transaction id."""
        return self._mark

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        self._others.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- opening -------------------------------------------------------------------------------------------------

    def _ready(self) -> Bounded:
        """The open connection, or a new one. Raises ConnectFailed."""
        if self._connection is not None and (self._connection.closed or self._connection.broken):
            self.close()
        if self._connection is None:
            self._connection = self._open()
        if self._mark.application != self.application:
            self._rename(self._connection)
        return self._connection

    def _open(self) -> Bounded:
        connection = connect(
            self._conninfo,
            application=self.application,
            database=self._database,
            timeout_s=self._connect_timeout_s,
            clock=self._clock,
        )
        connection.add_notice_handler(self._hear)
        try:
            with self._within(connection, SHORT_S):
                [may] = connection.execute(sql.MAY_READ_CONTROL).fetchall()
                self._reads_control = bool(may["may"])
                self._identity = self._who(connection)
                [started] = connection.execute(sql.STARTED).fetchall() or [{"backend_start": None}]
                self._mark = self._marked(connection, started["backend_start"])
                for name, value in self._kept.items():
                    connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
        except psycopg.Error as error:
            connection.close()
            raise ConnectFailed("other", f"connected, but: {_told(error)}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _marked(self, connection: Bounded, backend_start: Any) -> Mark:
        identity = self._identity
        return Mark(
            system_identifier=identity.system_identifier,
            timeline=identity.timeline,
            server_start_us=identity.server_start_us,
            database=identity.database,
            pid=0 if self._pooled else self._backend,
            backend_start_us=0 if backend_start is None or self._pooled else sql.wall_us(backend_start),
            application=self.application,
        )

    def _rename(self, connection: Bounded) -> None:
        with self._within(connection, SHORT_S):
            connection.execute("SELECT pg_catalog.set_config('application_name', %s, false)", (self.application,))
        self._mark = replace(self._mark, application=self.application)

    def _who(self, connection: Bounded) -> Identity:
        with self._within(connection, SHORT_S):
            [row] = connection.execute(sql.WHO).fetchall()
            control = connection.execute(sql.CONTROL).fetchone() if self._reads_control else None
        self._backend = int(row["pid"])
        self._pooled = self._backend != connection.pgconn.backend_pid
        return sql.who(row, control)

    # -- a statement ---------------------------------------------------------------------------------------------

    def _begun(self, transaction: bool) -> Bounded:
        """The connection, identified, in a transaction where one is wanted. Raises Refused."""
        for attempt in (1, 2):
            connection = self._ready()
            begin = "BEGIN" if self._identity.role == STANDBY else "BEGIN READ WRITE"
            try:
                with self._within(connection, SHORT_S):
                    if transaction:
                        connection.execute(begin)
                    self._identify(connection, transaction)
                return connection
            except Refused:
                self._roll_back(connection)
                raise
            except Lost:
                if attempt == 2:
                    raise
            except psycopg.Error as error:
                self._roll_back(connection)
                raise _failed(error) from None
        raise AssertionError("unreachable")

    def _identify(self, connection: Bounded, transaction: bool) -> None:
        now = self._who(connection)
        if self.planned is not None:
            refuse_other(self.planned, now)
        if not transaction:
            self._refuse_pooled("what runs in no transaction may end on another connection than it began on")

    def _refuse_pooled(self, why: str) -> None:
        if self._pooled:
            hint = "begin the run with a connection string that leads to the server itself"
            raise Refused(f"a pooler stands between: {why}", hint=hint)

    def _commit(self, connection: Bounded) -> None:
        """Write the transaction id down, then COMMIT."""
        if connection.info.transaction_status != TransactionStatus.INTRANS:
            raise StatementFailed(
                "the statement ended its transaction itself; what it did before that stays",
                hint="a change may hold no COMMIT or ROLLBACK of its own; transaction=no is for what cannot be in one",
            )
        with self._within(connection, SHORT_S):
            [row] = connection.execute(sql.XID).fetchall()
        xid = None if row["xid"] is None else int(row["xid"])
        mark = None if xid is None else replace(self._mark, xid=xid)
        if mark is not None:
            self.on_mark(mark)
        try:
            with self._within(connection, self.commit_s, mark):
                connection.execute("COMMIT")
        except Lost:
            if mark is not None:
                raise
            # Nothing was to be committed: what the statement did had its effect when it was executed.

    @contextmanager
    def _ending(self, connection: Bounded) -> Iterator[None]:
        """Whatever goes wrong, no transaction is left open; the driver's errors become those of the link."""
        try:
            yield
        except psycopg.Error as error:
            stopped = connection.stopping
            self._roll_back(connection)
            raise _failed(error, stopped=stopped) from None
        except BaseException:
            self._roll_back(connection)
            raise

    @contextmanager
    def _within(self, connection: Bounded, timeout_s: float | None, mark: Mark | None = None) -> Iterator[None]:
        """A deadline; a connection that breaks or is late is Lost, with the mark of what may have taken effect."""
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
            if not (connection.closed or connection.broken or error.diag.severity_nonlocalized in ("FATAL", "PANIC")):
                raise
            connection.close()
            raise Lost(f"the connection broke: {_told(error)}", mark=mark) from None
        finally:
            connection.until_us = before

    @contextmanager
    def _watched(self, connection: Bounded, watch: Watch | None) -> Iterator[None]:
        backend, connection.stopping = self._backend, False
        connection.watch = None if watch is None else lambda: watch(backend)
        try:
            yield
        finally:
            connection.watch = None

    def _limit(self, connection: Bounded, timeout_s: float | None, lock_s: float, *, local: bool) -> None:
        limits = {"statement": _ms(timeout_s), "lock": _ms(lock_s), "idle": _ms(IDLE_S), "local": local}
        with self._within(connection, SHORT_S):
            connection.execute(sql.LIMITS, limits)

    def _roll_back(self, connection: Bounded) -> None:
        if connection.closed or connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            with self._within(connection, SHORT_S):
                connection.execute("ROLLBACK")
        except (psycopg.Error, Lost):
            connection.close()

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING" and len(self._warnings) < 10:
            self._warnings.append(redact(clean(notice.message_primary or ""))[:500])


def refuse_other(planned: Identity, now: Identity) -> None:
    """Raises Refused where it is another server, Restarted where it is the same one started anew."""
    if told := other_server(planned, now):
        raise Refused(told, hint="nothing was done; begin a run anew on the server that is meant")
    if told := restarted(planned, now):
        raise Restarted(told, hint="go on only if that restart was meant")


def _failed(error: psycopg.Error, *, stopped: bool = False) -> StatementFailed:
    kind = Stopped if stopped and error.sqlstate == "57014" else StatementFailed
    return kind(_told(error), sqlstate=error.sqlstate, hint=error.diag.message_hint)


def _told(error: psycopg.Error) -> str:
    primary, detail = error.diag.message_primary, error.diag.message_detail
    text = str(error) if primary is None else primary if detail is None else f"{primary}: {detail}"
    return redact(clean(" ".join(text.split())))[:1000]


def _ms(seconds: float | None) -> str:
    return "0" if seconds is None else str(max(1, int(seconds * 1000))) if seconds else "0"


def _plus(seconds: float | None, more_s: float) -> float | None:
    return None if seconds is None else seconds + more_s
