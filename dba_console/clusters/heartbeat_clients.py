"""The two client connections of the heartbeat, one that writes and one that reads, and the record of their beats.

A beat waits as long as the server or the pooler makes it wait; a failed connection is reopened at once.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dba_console.clusters.heartbeat import INTERVAL_S
from dba_console.core.atomic_files import write_all
from dba_console.core.clock import SYSTEM
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.target import parse_conninfo
from dba_console.watch.probes.postgres.binary_results import decode
from dba_console.watch.probes.postgres.connect import (
    AnswerSize,
    message_of,
    open_connection,
    resolve_hosts,
    wait_for,
)
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost, plain_message
from dba_console.watch.probes.postgres.server_trust import forget

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

# Write target of the heartbeat: its own table, or, if none may be created, a message in the WAL.
#
# Pure: statements, and the decision from the server's answer. All statements use the simple protocol and are one
# transaction each, so they need no session state and work behind a transaction pooler.

SCHEMA = "dba_console"
TABLE = f"{SCHEMA}.heartbeat"
MARK = "made by dba-console for a cutover; it removes this at the end"
"""Comment on the objects that the heartbeat created, and may therefore drop."""
STALE = "10 min"
"""Age of rows left by a killed heartbeat. One that is only held so long makes its row, or the table, again."""
_SEARCH_PATH = "SET LOCAL search_path TO pg_catalog, pg_temp; "
_SERVER_COLUMNS = (
    "pg_catalog.host(pg_catalog.inet_server_addr()) AS address, pg_catalog.current_setting('port') AS port,"
    " pg_catalog.pg_is_in_recovery()::text AS in_recovery, CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE"
    " pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) END AS timeline"
)
"""Timeline from the name of the WAL file: pg_control has the old one until the first checkpoint after a promotion."""
_IF_CONNECTIONS_ALLOWED = (
    " FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
    " AND d.datconnlimit OPERATOR(pg_catalog.<>) 0"
)
"""A cutover blocks clients with CONNECTION LIMIT 0, which does not apply to superusers and existing sessions: the
heartbeat applies it itself, to behave like a client."""
READ_BEAT = _SEARCH_PATH + "SELECT " + _SERVER_COLUMNS + _IF_CONNECTIONS_ALLOWED
WAL_MESSAGE_BEAT = (
    _SEARCH_PATH
    + "SELECT "
    + _SERVER_COLUMNS
    + ", pg_catalog.pg_logical_emit_message(true, 'dba-console', '')::text AS position"
    + _IF_CONNECTIONS_ALLOWED
)
"""An empty transactional message: it is written to the WAL, and its commit waits for disk and synchronous standbys like
any other. A standby rejects it, because it needs a transaction id."""
TARGET_FACTS = (
    _SEARCH_PATH
    + f"""
SELECT pg_is_in_recovery()::text AS in_recovery, current_database()::text AS database, current_user::text AS role,
       has_database_privilege(current_database(), 'CREATE')::text AS may_create,
       (SELECT string_agg(p.pubname, ', ' ORDER BY p.pubname) FROM pg_publication p WHERE p.puballtables) AS publishes,
       (SELECT r.rolname::text FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
         WHERE n.nspname = '{SCHEMA}') AS schema_owner,
       (SELECT (r.rolsuper OR r.rolname = current_user)::text FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
         WHERE n.nspname = '{SCHEMA}') AS schema_trusted,
       (SELECT (has_schema_privilege(n.oid, 'CREATE'))::text FROM pg_namespace n
         WHERE n.nspname = '{SCHEMA}') AS schema_may_create,
       c.owner AS table_owner, c.trusted AS table_trusted, c.writable AS table_writable
  FROM (SELECT) AS one
  LEFT JOIN (SELECT r.rolname::text AS owner, (r.rolsuper OR r.rolname = current_user)::text AS trusted,
                    (has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT')
                     AND has_table_privilege(t.oid, 'UPDATE') AND t.relkind = 'r')::text AS writable
               FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace JOIN pg_roles r ON r.oid = t.relowner
              WHERE n.nspname = '{SCHEMA}' AND t.relname = 'heartbeat') AS c ON true
"""
)
CREATE_SCHEMA = f"CREATE SCHEMA {SCHEMA}; COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'; "
CREATE_TABLE = (
    f"CREATE TABLE {TABLE} (run text PRIMARY KEY, beats int8 NOT NULL, at timestamptz NOT NULL)"
    f" WITH (fillfactor = 50); COMMENT ON TABLE {TABLE} IS '{MARK}'; "
)
"""Half of each page stays free, so that updates are HOT and need no new index entry."""
LOCK = f"BEGIN; {_SEARCH_PATH}SET LOCAL lock_timeout = '2s'; LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE"
ROWS = f"SELECT count(*)::text AS rows FROM {TABLE}"
DROP_TABLE = f"DROP TABLE {TABLE}; COMMIT"
DROP_SCHEMA = f"{_SEARCH_PATH}DROP SCHEMA {SCHEMA}"
CREATED_BY_HEARTBEAT = (
    _SEARCH_PATH
    + f"""
SELECT (SELECT (d.description = '{MARK}' AND c.relowner = u.oid)::text
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_description d ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass AND d.objsubid = 0
         WHERE n.nspname = '{SCHEMA}' AND c.relname = 'heartbeat') AS "table",
       (SELECT (d.description = '{MARK}' AND n.nspowner = u.oid)::text
          FROM pg_namespace n
          LEFT JOIN pg_description d ON d.objoid = n.oid AND d.classoid = 'pg_namespace'::regclass
         WHERE n.nspname = '{SCHEMA}') AS "schema"
  FROM pg_roles u WHERE u.rolname = current_user
"""
)
"""Whether this role's heartbeat created the table and the schema."""


class WriteTarget(Struct, frozen=True):
    """The write target of the beats."""

    advisory: str = ""
    """Why WAL messages are used instead of a table; empty: a table is used."""
    create: str = ""
    """Statements that create the missing objects."""


def choose_target(facts: Mapping[str, str]) -> WriteTarget:
    """Choose from TARGET_FACTS. A table of another role is not written: its triggers would run with our privileges."""
    schema, table = facts.get("schema_owner"), facts.get("table_owner")
    if schema is not None and facts.get("schema_trusted") != "true":
        return WriteTarget(advisory=f"the schema {SCHEMA} belongs to the role {schema}")
    if table is not None:
        if facts.get("table_trusted") != "true":
            return WriteTarget(advisory=f"the table {TABLE} belongs to the role {table}")
        if facts.get("table_writable") != "true":
            return WriteTarget(advisory=f"the role {facts.get('role')} may not write the table {TABLE}")
        return WriteTarget()
    if publishes := facts.get("publishes"):
        # A table that a subscriber lacks stops its apply worker (logicalrep_rel_open).
        return WriteTarget(
            advisory=f"a new table would stop the subscribers of {publishes}, which publishes all tables"
        )
    if schema is None and facts.get("may_create") != "true":
        return WriteTarget(advisory=f"the role {facts.get('role')} may not create a schema in {facts.get('database')}")
    if schema is not None and facts.get("schema_may_create") != "true":
        return WriteTarget(advisory=f"the role {facts.get('role')} may not create a table in the schema {SCHEMA}")
    return WriteTarget(create=(CREATE_SCHEMA if schema is None else "") + CREATE_TABLE)


def write_beat(run: str, create: str = "") -> str:
    """Return a write beat; `run` has only letters and digits. `create` is executed in the same transaction."""
    return (
        f"{_SEARCH_PATH}{create}INSERT INTO {TABLE} AS h (run, beats, at) SELECT '{run}', 1, "
        f"now(){_IF_CONNECTIONS_ALLOWED}"
        f" ON CONFLICT (run) DO UPDATE SET beats = h.beats + 1, at = excluded.at RETURNING {_SERVER_COLUMNS}"
    )


def remove_rows(run: str) -> str:
    """Return the statement that deletes the row of this heartbeat and of killed ones."""
    return f"{_SEARCH_PATH}DELETE FROM {TABLE} WHERE run = '{run}' OR at < now() - interval '{STALE}'"


# Record of the heartbeat process: one JSON array per line, collected from all threads, appended by one.
#
# Beats are `["w", started, ended, server]` and `["r", …]`, failed ones `["W", started, ended, error]`, in us of
# the monotonic clock. Beats wait in memory for the next flush: a stalled disk delays the record, not the beats.

WRITE, READ = "w", "r"
MOST_LINES = 200_000
"""Maximum lines in memory while the disk is stalled: half an hour of beats."""


class BeatRecord:
    """The lines that are not on disk yet. Thread-safe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._lock = threading.Lock()
        self._lines: list[list[Any]] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._ended_us: int | None = None
        self.first_write_ended = threading.Event()
        """Set after the first write, acknowledged or not."""

    def put(self, *line: Any) -> None:
        with self._lock:
            self._lines.append(list(line))

    def beat(self, sign: str, started_us: int, answer: Mapping[str, str]) -> None:
        """Record an acknowledged beat that ended now."""
        ended_us = SYSTEM.mono_us()
        server = {name: answer.get(name) for name in ("address", "port", "in_recovery", "timeline")}
        self.put(sign, started_us, ended_us, self._number("server", server))
        self._note_first_write(sign)

    def failure(self, sign: str, started_us: int, text: str) -> None:
        self.put(sign.upper(), started_us, SYSTEM.mono_us(), self._number("error", text))
        self._note_first_write(sign)

    def _note_first_write(self, sign: str) -> None:
        if sign == WRITE:
            self.first_write_ended.set()

    def removed(self) -> bool:
        """Whether its file was deleted."""
        return os.fstat(self._descriptor).st_nlink == 0

    def end(self) -> None:
        """Record the end of the measurement."""
        self._ended_us = SYSTEM.mono_us()

    def flush(self) -> None:
        """Append the lines to the file. If that fails, they are kept for the next flush."""
        with self._lock:
            # Taken under the lock: every beat that ended before this time is in these lines or already on disk.
            lines, self._lines = [*self._lines, ["at", self._ended_us or SYSTEM.mono_us()]], []
        data = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
        try:
            write_all(self._descriptor, data)
            self._size += len(data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            with self._lock:
                self._lines = (lines[:-1] + self._lines)[-MOST_LINES:]

    def _number(self, kind: str, value: Any) -> int:
        """Return the number of a server or error; its first occurrence writes a line that defines it."""
        with self._lock:
            key = (kind, json.dumps(value))
            if key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._lines.append([kind, self._numbers[key], value])
            return self._numbers[key]


CONNECT_S = 1.0
"""Timeout for each host of the connection string; a paused pooler may hold a new connection that long."""
RETRY_S = 0.03
"""Pause after a failure: short compared with any outage, and not a flood of connections."""
LONG_OUTAGE_S, LONG_RETRY_S = 60.0, 1.0
"""After a minute without an answer: one attempt per second, to save load on the host."""
REMOVE_S = 3.0
"""Time to remove row and table at the end, for all statements together."""
CHECK_S = 0.1
"""Interval at which a waiting beat checks for the end."""
_KEEPALIVE_OPTIONS = {
    "keepalives_idle": "1", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "5000",
}  # fmt: skip
"""A lost host is noticed after 5 s; a pooler that holds a beat still answers at TCP level."""
_APPLICATION = "dba-console:cutover-heartbeat"
"""A session of the cutover: it is not terminated with those of clients, but its beats fail while these are blocked."""
KEPT_OUT_MESSAGE = "the database accepts no connections: its CONNECTION LIMIT is 0"


class BeatFailed(Exception):
    """A beat that was not acknowledged; `code`: the SQLSTATE, if the server sent one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(clean(redact(plain_message(message))))
        self.code = code


class ClientsKeptOut(BeatFailed):
    """Connections are blocked. The heartbeat's connection stays open."""


class BeatStopped(Exception):
    """The heartbeat is stopping, and does not wait for the beat."""


class HeartbeatClient:
    """One connection and its beats."""

    record_kind = READ

    def __init__(self, conninfo: str, record: BeatRecord, stop: threading.Event) -> None:
        self._options = {**_KEEPALIVE_OPTIONS, **parse_conninfo(conninfo)}
        self._record, self._stop = record, stop
        self._connection: PGconn | None = None

    def run(self) -> None:
        answered_us = SYSTEM.mono_us()
        while not self._stop.is_set():
            started_us = SYSTEM.mono_us()
            try:
                answer = self.beat(self._connection or self._connect())
            except BeatStopped:
                break
            except (BeatFailed, ConnectFailed) as error:
                if not isinstance(error, ClientsKeptOut):
                    self._close()
                text = error.message if isinstance(error, ConnectFailed) else str(error)
                self._record.failure(self.record_kind, started_us, clean(text))
                self._stop.wait(RETRY_S if started_us - answered_us < LONG_OUTAGE_S * 1e6 else LONG_RETRY_S)
                continue
            answered_us = started_us
            self._record.beat(self.record_kind, started_us, answer)
            self._stop.wait(INTERVAL_S - (SYSTEM.mono_us() - started_us) / 1e6)
        self.finish()
        self._close()

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        return self._execute_beat(connection, READ_BEAT)

    def finish(self) -> None:
        """Clean up before the connection is closed."""

    def _execute_beat(self, connection: PGconn, statement: str) -> Mapping[str, str]:
        """Return the row of a beat. Raises ClientsKeptOut without a row."""
        if not (row := self._execute(connection, statement)):
            raise ClientsKeptOut(KEPT_OUT_MESSAGE)
        return row

    def _connect(self) -> PGconn:
        failure = ConnectFailed("other", "no host to connect to")
        for host in _split_hosts(resolve_hosts({**self._options})):
            try:
                forget(host)  # after a failover the servers behind an address may differ in TLS or authentication
                self._connection = open_connection(host, CONNECT_S, SYSTEM, application_name=_APPLICATION)
                return self._connection
            except ConnectFailed as error:
                failure = error
        raise failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    def _execute(self, connection: PGconn, statement: str, until_us: int | None = None) -> dict[str, str]:
        """Return the last row of the statements, without NULLs. `until_us` None: wait until the heartbeat stops."""
        from psycopg import OperationalError
        from psycopg.pq import DiagnosticField

        row: dict[str, str] = {}
        failure: PGresult | None = None
        size = AnswerSize()
        try:
            connection.send_query(statement.encode())
            while True:
                while connection.is_busy():
                    self._wait(connection.socket, until_us)
                    size.arrived(connection.socket)
                    connection.consume_input()
                    size.taken(connection.socket)
                result = connection.get_result()
                if result is None:
                    break
                if result.error_message:
                    failure = result
                elif result.ntuples:
                    row = _row(result)
        except OperationalError as error:
            raise BeatFailed(message_of(connection) or str(error)) from None
        except ConnectionLost as error:
            raise BeatFailed(error.message) from None
        if failure is None:
            return row
        code, text = (failure.error_field(one) for one in (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY))
        raise BeatFailed(decode(text or failure.error_message).strip(), decode(code or b""))

    def _wait(self, descriptor: int, until_us: int | None) -> None:
        at = SYSTEM.mono_us() + int(CHECK_S * 1e6)
        if wait_for(descriptor, writing=False, until_us=at if until_us is None else min(at, until_us), clock=SYSTEM):
            return
        if until_us is None and self._stop.is_set():
            raise BeatStopped
        if until_us is not None and SYSTEM.mono_us() >= until_us:
            raise BeatFailed(f"no answer within {REMOVE_S:g} s")


class HeartbeatWriter(HeartbeatClient):
    """The writing client: a beat is acknowledged by a read-write server once its commit is durable."""

    record_kind = WRITE

    def __init__(self, conninfo: str, run: str, record: BeatRecord, stop: threading.Event) -> None:
        super().__init__(conninfo, record, stop)
        self._run = run
        self._target: WriteTarget | None = None
        self._has_row = False

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        if self._target is None:
            self._target = choose_target(self._execute(connection, TARGET_FACTS))
            if self._target.create:
                return self._create_and_write(connection, self._target.create)
            if self._target.advisory:
                self._record.put("advisory", self._target.advisory)
        if self._target.advisory:
            return self._execute_beat(connection, WAL_MESSAGE_BEAT)
        try:
            answer = self._execute_beat(connection, write_beat(self._run))
        except BeatFailed as error:
            if error.code in ("42P01", "3F000"):  # the table is gone: lost in a failover, or dropped
                self._target = None
            raise
        self._has_row = True
        return answer

    def _create_and_write(self, connection: PGconn, create: str) -> Mapping[str, str]:
        """Create the table and write its row. If that is refused, use WAL messages instead."""
        self._target = None
        try:
            answer = self._execute_beat(connection, write_beat(self._run, create))
        except BeatFailed as error:
            if error.code[:2] not in ("42", "P0") or error.code in ("42P06", "42P07", "42710"):
                raise  # missing now, or created by another heartbeat meanwhile: chosen again at the next beat
            self._target = WriteTarget(advisory=f"the table cannot be created: {error}")
            self._record.put("advisory", self._target.advisory)
            return self._execute_beat(connection, WAL_MESSAGE_BEAT)
        self._target, self._has_row = WriteTarget(), True
        return answer

    def finish(self) -> None:
        """Remove the row, and the table and schema if a heartbeat created them and they are unused."""
        if not self._has_row:
            return
        try:
            self._remove()
        except (BeatFailed, ConnectFailed) as error:
            self._record.put("left", f"{TABLE} was not removed: {error}; remove it with: "
                             f"drop schema {SCHEMA} cascade")  # fmt: skip

    def _remove(self) -> None:
        if self._connection is not None and self._connection.transaction_status:
            self._close()  # a beat is in progress, possibly held by a pooler
        connection = self._connection or self._connect()
        until_us = SYSTEM.mono_us() + int(REMOVE_S * 1e6)
        self._execute(connection, remove_rows(self._run), until_us)
        ours = self._execute(connection, CREATED_BY_HEARTBEAT, until_us)
        if ours.get("table") == "true":
            self._execute(connection, LOCK, until_us)
            if self._execute(connection, ROWS, until_us).get("rows") != "0":
                self._execute(connection, "ROLLBACK", until_us)
                return  # rows of another heartbeat, which removes the table when it ends
            self._execute(connection, DROP_TABLE, until_us)
        if ours.get("schema") == "true":
            try:
                self._execute(connection, DROP_SCHEMA, until_us)
            except BeatFailed as error:
                if error.code != "2BP01":  # dependent_objects_still_exist: the schema has other objects
                    raise


def _split_hosts(options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the hosts one by one, so that each has the full connection timeout."""
    lists = {name: options[name].split(",") for name in ("host", "hostaddr", "port") if options.get(name)}
    for number in range(max((len(values) for values in lists.values()), default=1)):
        host_options = {name: values[number] if len(values) > 1 else values[0] for name, values in lists.items()}
        yield {**options, **host_options}


def _row(result: PGresult) -> dict[str, str]:
    return {
        decode(result.fname(column) or b""): decode(value)
        for column in range(result.nfields)
        if (value := result.get_value(result.ntuples - 1, column)) is not None
    }
