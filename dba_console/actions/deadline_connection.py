"""An open psycopg connection with a deadline on every wait, which knows the server that answered.

psycopg alone would wait without limit; only its waiting is replaced. The monitoring connection does without psycopg's
classes; this one runs the SQL of runbooks and needs psycopg's types.
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, LiteralString, TypeVar

import psycopg
import psycopg.sql
from msgspec.structs import replace
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import DictRow, dict_row
from psycopg.waiting import Ready, Wait

from dba_console.actions.identity import PRIMARY, STANDBY, ServerIdentity
from dba_console.actions.statement_results import (
    Params,
    StatementFailed,
    StatementLost,
    StatementMark,
    StatementResult,
    StatementStopped,
    StatementWatch,
)
from dba_console.core.clock import Clock
from dba_console.core.errors import Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.probes.postgres.connect import LOST, AnswerSize, open_connection, parse_options, without_timeouts
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost, plain_message

POLL_S = 0.2
"""Interval at which the watch function is called while a statement runs."""
CANCEL_TIMEOUT_S = 5.0
"""Time for a cancel request to arrive, and again for the server to cancel."""
OVERDUE = 100
"""Maximum reads after the deadline: enough for an answer that has arrived already, but not an endless one."""
_BACKEND_PID = b"SELECT pg_catalog.pg_backend_pid() AS pid"
_OURS = b"""SELECT pg_catalog.set_config('role', 'none', %b),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', %b),
       pg_catalog.set_config('datestyle', 'ISO, YMD', %b), pg_catalog.set_config('intervalstyle', 'postgres', %b)"""
_SET_SEARCH_PATH, _SET_LOCAL_SEARCH_PATH = (_OURS.replace(b"%b", local) for local in (b"false", b"true"))
"""Until this is set, the search_path chosen by the database's owner decides which functions, operators, casts and views
are used, and the role. So these must contain no cast and no operator. psycopg reads times in ISO style only."""
SESSION_TIMEOUTS = {
    "idle_in_transaction_session_timeout": 0,
    "idle_session_timeout": 140000,
    "transaction_timeout": 170000,
}
"""Timeout of a session -> first version that has it. They are set to 0: a VACUUM or an index build is one long
transaction, and an operator thinks between two statements."""
_TEXT_TYPE_OIDS = (0, 18, 19, 25, 705, 1042, 1043)
"""Unknown to psycopg, char, name, text, unknown, bpchar, varchar (pg_type.dat)."""

IDLE_TRANSACTION_S = 60.0
"""idle_in_transaction_session_timeout of our transactions: if the journal's disk hangs or this process is gone, the
server rolls back, so that no session waits for our locks."""
SHORT_TIMEOUT_S = 10.0
"""For the statements about the connection itself."""
_CANCELLED = "57014"
"""query_canceled."""
_MAX_WARNINGS = 10

# Statements that identify the server.

IDENTITY = b"""
SELECT pg_catalog.current_setting('server_version_num')::int4 AS version_num,
       pg_catalog.pg_is_in_recovery() AS in_recovery,
       pg_catalog.pg_postmaster_start_time() AS server_start,
       pg_catalog.current_setting('port')::int4 AS port,
       CASE WHEN pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')
            THEN pg_catalog.current_setting('data_directory') END AS data_directory,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS address,
       pg_catalog.current_database()::text AS database,
       current_user::text AS "user",
       pg_catalog.pg_backend_pid() AS pid
"""
CONTROL_DATA = b"""
SELECT s.system_identifier,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN greatest((SELECT r.received_tli FROM pg_catalog.pg_stat_wal_receiver r), c.timeline_id,
                          e.min_recovery_end_timeline)
            ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::int4
       END AS timeline
  FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c,
       pg_catalog.pg_control_recovery() e
"""
"""As the monitoring connection asks it, see control.sql: pg_control lags until the next checkpoint."""
OWN_SESSION = b"""
SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
   AND pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE')
   AND pg_catalog.has_function_privilege('pg_catalog.pg_control_recovery()', 'EXECUTE') AS may_read_control,
       (SELECT a.backend_start FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a) AS backend_start
"""
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


T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The server did not answer by the deadline; the connection is closed."""


class DeadlineConnection(psycopg.Connection[DictRow]):
    """A connection in autocommit, with rows as dictionaries. Opened by `connect`; not thread-safe."""

    deadline_us: int | None = None
    """Limits every call; None: no limit."""
    watch: Callable[[], bool] | None = None
    """Called while a statement runs; True cancels it, once."""
    cancelling: bool = False
    direct: bool = False
    """The connection goes through no pooler: session parameters affect only us."""
    identity = ServerIdentity()
    """The server when the connection was identified."""
    mark = StatementMark()
    """Mark of this connection, without a transaction id."""
    backend = 0
    reads_control = False
    fatal_sqlstate: str | None = None
    """Of the message with which the server closed the connection between two statements."""

    def __init__(self, opened: PGconn, clock: Clock) -> None:
        super().__init__(opened, row_factory=dict_row)
        self.clock = clock
        self.warnings: list[str] = []
        self.autocommit = True
        # No prepared statements: behind a pooler the next transaction may run on another backend.
        self.prepare_threshold = None
        for oid in _TEXT_TYPE_OIDS:
            self.adapters.register_loader(oid, _TextLoader)
        self.add_notice_handler(self._collect_warning)
        self.add_notify_handler(lambda notify: None)  # we listen to nothing, and psycopg would keep them

    def begin(self, how: LiteralString = "BEGIN") -> None:
        """Begin a transaction in which names resolve in pg_catalog first."""
        self.execute(how)
        if not self.direct:
            self.execute(_SET_LOCAL_SEARCH_PATH)

    def wait(self, gen: PQGen[T], interval: float = POLL_S, timeout: float | None = None) -> T:
        """Run psycopg's generator to its end. Raises DeadlineExceeded, and psycopg's errors."""
        try:
            wanted = next(gen)
            overdue, size = 0, AnswerSize()
            while True:
                ready = self._poll(wanted)
                if ready & Ready.R:
                    size.arrived(self.pgconn.socket)
                overdue += self.deadline_us is not None and self.clock.mono_us() >= self.deadline_us
                if ready == Ready.NONE or overdue > OVERDUE:
                    self._check_deadline(gen)
                wanted = gen.send(ready)
                size.taken(self.pgconn.socket)
        except StopIteration as end:
            value: T = end.value
            return value
        except ConnectionLost as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(error.message) from None

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

    @contextmanager
    def safe_search_path(self) -> Iterator[None]:
        """Resolve names in pg_catalog first, also behind a pooler that resets settings between transactions."""
        if self.direct or self.in_transaction():
            yield
            return
        self.begin("BEGIN READ ONLY")
        yield
        self.execute("ROLLBACK")

    def read_identity(self) -> ServerIdentity:
        """Return the identity of the server that answers now."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [row] = self.execute(IDENTITY).fetchall()
            control = self.execute(CONTROL_DATA).fetchone() if self.reads_control else None
        self.backend = int(row["pid"])
        return make_identity(row, control)

    def identify(self, application: str) -> None:
        """Identify the server, and mark the connection."""
        with self.deadline(SHORT_TIMEOUT_S), self.safe_search_path():
            [session] = self.execute(OWN_SESSION).fetchall()
            self.reads_control = bool(session["may_read_control"])
            self.identity = self.read_identity()
        self.mark = self._make_mark(application, session["backend_start"])

    def set_application_name(self, application: str) -> None:
        self.set_parameter("application_name", application)
        self.mark = replace(self.mark, application=application)

    def set_parameter(self, name: str, value: str) -> None:
        """Set a parameter for the rest of this connection."""
        with self.deadline(SHORT_TIMEOUT_S):
            self.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))

    def reset_parameter(self, name: str) -> None:
        statement = psycopg.sql.SQL("RESET {}").format(psycopg.sql.Identifier(*name.split(".")))
        with self.deadline(SHORT_TIMEOUT_S):
            self.execute(statement)

    def refuse_pooled(self, why: str) -> None:
        """Raise Refused behind a pooler, where the next statement may run on another backend."""
        if not self.direct:
            hint = "start the run with a connection string of the server itself, not of the pooler"
            raise Refused(f"the connection goes through a pooler: {why}", hint=hint)

    def set_timeouts(self, timeout_s: float | None, lock_s: float, *, local: bool) -> None:
        """Set the server's timeouts, for this transaction (`local`) or for the rest of the connection."""
        limits = {"statement": _ms(timeout_s), "lock": _ms(lock_s), "idle": _ms(IDLE_TRANSACTION_S), "local": local}
        with self.deadline(SHORT_TIMEOUT_S):
            self.execute(SET_TIMEOUTS, limits)

    def in_transaction(self) -> bool:
        return self.info.transaction_status == TransactionStatus.INTRANS

    def roll_back(self) -> None:
        if self.closed or self.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            with self.deadline(SHORT_TIMEOUT_S):
                self.execute("ROLLBACK")
        except (psycopg.Error, StatementLost):
            self.close()

    @contextmanager
    def deadline(self, timeout_s: float | None, mark: StatementMark | None = None) -> Iterator[None]:
        """Set a deadline; if it passes or the connection breaks, raise StatementLost with `mark`."""
        before = self.deadline_us
        self.deadline_us = None if timeout_s is None else self.clock.mono_us() + int(timeout_s * 1e6)
        try:
            yield
        except DeadlineExceeded:
            self.close()
            raise StatementLost(f"the server did not answer within {timeout_s:g} s", mark=mark) from None
        except psycopg.Error as error:
            # FATAL ends the connection, although the close may not have arrived yet. After COMMIT was sent it is no
            # proof of a rollback: a session that waits for a synchronous standby has committed already.
            if not (self.closed or error.diag.severity_nonlocalized in ("FATAL", "PANIC")):
                raise
            self.close()
            raise StatementLost(f"the connection broke: {server_message(error)}", mark=mark) from None
        finally:
            self.deadline_us = before

    @contextmanager
    def rollback_on_error(self) -> Iterator[None]:
        """On any error, roll back; turn the driver's errors into StatementFailed or StatementStopped."""
        try:
            yield
        except psycopg.Error as error:
            stopped = self.cancelling and error.sqlstate == _CANCELLED
            self.roll_back()
            kind = StatementStopped if stopped else StatementFailed
            raise kind(server_message(error), sqlstate=error.sqlstate, hint=error.diag.message_hint) from None
        except BaseException:
            self.roll_back()
            raise

    @contextmanager
    def watched(self, watch: StatementWatch | None) -> Iterator[None]:
        backend, self.cancelling = self.backend, False
        self.watch = None if watch is None else lambda: watch(backend)
        try:
            yield
        finally:
            self.watch = None

    def _make_mark(self, application: str, backend_start: Any) -> StatementMark:
        direct = self.direct
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
        if notice.severity_nonlocalized == "FATAL":
            self.fatal_sqlstate = notice.sqlstate
        if notice.severity_nonlocalized == "WARNING" and len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(redact(clean(notice.message_primary or ""))[:500])


def connect(
    conninfo: str, *, application: str, database: str | None, timeout_s: float, clock: Clock
) -> DeadlineConnection:
    """Open the connection. Raises ConnectFailed, with nothing left open."""
    overrides = {"application_name": application, "client_encoding": "UTF8"}
    if database is not None:
        overrides["dbname"] = database
    given = {**parse_options(conninfo), **overrides}
    return without_timeouts(given, lambda given: _connect(given, timeout_s, clock))


def _connect(given: Mapping[str, str], timeout_s: float, clock: Clock) -> DeadlineConnection:
    opened = open_connection(
        given, timeout_s, clock, application_name=given["application_name"], client_encoding="UTF8"
    )
    connection: DeadlineConnection | None = None
    try:
        opened.nonblocking = 1
        connection = DeadlineConnection(opened, clock)
        connection.deadline_us = clock.mono_us() + int(timeout_s * 1e6)
        [backend] = connection.execute(_BACKEND_PID).fetchall()
        connection.direct = backend["pid"] == opened.backend_pid
        if connection.direct:
            version = opened.server_version
            off = (
                f"pg_catalog.set_config('{name}', '0', false)"
                for name, since in SESSION_TIMEOUTS.items()
                if since <= version
            )
            connection.execute(b", ".join([_SET_SEARCH_PATH, *(one.encode() for one in off)]))
        connection.deadline_us = None
    except psycopg.Error as error:
        opened.finish()
        sqlstate = error.sqlstate or (connection and connection.fatal_sqlstate) or LOST
        raise ConnectFailed("other", f"connected, but: {plain_message(str(error))}", sqlstate=sqlstate) from None
    except DeadlineExceeded:
        raise ConnectFailed("timeout", f"connected, but no answer to the first query within {timeout_s:g} s") from None
    except BaseException:
        opened.finish()
        raise
    return connection


def server_message(error: psycopg.Error) -> str:
    """Return the server's message on one line, without secrets."""
    primary, detail = error.diag.message_primary, error.diag.message_detail
    text = str(error) if primary is None else primary if detail is None else f"{primary}: {detail}"
    return redact(clean(" ".join(text.split())))[:1000]


def _ms(seconds: float | None) -> str:
    """Return milliseconds as text; 0 means no limit."""
    return str(max(1, int(seconds * 1000))) if seconds else "0"


class _TextLoader(Loader):
    """Loads text of any encoding: another session's statement is in the encoding of its own database."""

    def load(self, data: Any) -> str:
        return bytes(data).decode("utf-8", "replace")


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


def read_rows(connection: DeadlineConnection, sql: str, params: Params, limit: int | None) -> StatementResult:
    """Return the first rows, within a transaction; `limit` None: all rows. Raises psycopg's errors."""
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


def _take_rows(batches: Iterable[list[dict[str, Any]]], limit: int | None) -> tuple[tuple[dict[str, Any], ...], bool]:
    """Return the rows within the limits, and whether the server has more."""
    if limit is None:
        return tuple(row for batch in batches for row in batch), False
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in batches:
        for row in batch:
            size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
            if len(rows) >= limit or (rows and size > MAX_BYTES):
                return tuple(rows), True
            rows.append(row)
    return tuple(rows), False


# Rows of a user's table: counted as COPY sends them.
#
# A SELECT would call functions of the table's owner with our rights, a superuser's included: those of a view that took
# the table's name, and also those of a plain table, because the planner evaluates constant calls in the expressions of
# its indexes (RelationGetIndexExpressions in relcache.c). SET ROLE does not help: the function can reset it. COPY of a
# table plans nothing, refuses anything but a table after it has locked it, and with row_security off a table whose
# policies would apply.

_NARROWEST = b"""
SELECT (SELECT a.attname::text FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
         ORDER BY a.attlen < 0, a.attlen, a.attnum LIMIT 1) AS narrowest
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'r'
"""
_NO_POLICIES = b"SELECT pg_catalog.set_config('row_security', 'off', true)"


def count_copied_rows(connection: DeadlineConnection, schema: str, table: str) -> int | None:
    """Return the number of rows, within a transaction; None if it is not a table. Raises psycopg's errors."""
    column = connection.execute(_NARROWEST, (schema, table)).fetchone()
    if column is None:
        return None
    connection.execute(_NO_POLICIES)
    narrowest = psycopg.sql.SQL("" if column["narrowest"] is None else "({})")
    columns = narrowest.format(*[psycopg.sql.Identifier(name) for name in column.values() if name is not None])
    copied = psycopg.sql.SQL("COPY {}{} TO STDOUT").format(psycopg.sql.Identifier(schema, table), columns)
    with connection.cursor() as cursor, cursor.copy(copied) as copy:
        return sum(1 for _ in copy)  # each row is one message of the protocol
