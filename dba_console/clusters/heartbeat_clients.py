"""The two connections of the heartbeat: one writes, one reads, as clients of the cluster do.

A beat waits as long as the server or the pooler lets it wait; a connection that fails is opened again at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dba_console.clock import SYSTEM
from dba_console.clusters import heartbeat_table as table
from dba_console.clusters.heartbeat import INTERVAL_S
from dba_console.clusters.heartbeat_record import READ, WRITE, BeatRecord
from dba_console.probes.postgres.async_connect import message_of, open_connection, wait_for
from dba_console.probes.postgres.connect_errors import ConnectFailed, plain_message
from dba_console.probes.postgres.conninfo import monitor_conninfo
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.name_resolution import resolve_hosts
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.target import parse_conninfo

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

CONNECT_S = 1.0
"""For each host of the connection string; a paused pooler may hold a new connection as long."""
RETRY_S = 0.03
"""After a failure: short beside any outage, and no flood of connections."""
LONG_OUTAGE_S, LONG_RETRY_S = 60.0, 1.0
"""After a minute without an answer a second more or less does not matter, and attempts cost the host."""
REMOVE_S = 3.0
"""For removing row and table at the end, all statements together."""
CHECK_S = 0.1
"""How often a beat that waits notices that it shall end."""
_KEEPALIVE_OPTIONS = {
    "keepalives_idle": "1", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "5000",
}  # fmt: skip
"""A host that vanished is noticed after 5 s; a pooler that holds a beat goes on answering on TCP's level."""
_APPLICATION = "dba-console:cutover-heartbeat"
"""A session of the cutover: it is not ended with those of clients, but holds its beats while these are kept out."""
KEPT_OUT_MESSAGE = "the database takes no connections: its CONNECTION LIMIT is 0"


class BeatFailed(Exception):
    """A beat that was not acknowledged; `code` is the SQLSTATE where the server sent one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(clean(redact(plain_message(message))))
        self.code = code


class ClientsKeptOut(BeatFailed):
    """Clients are kept out. The connection stays."""


class BeatStopped(Exception):
    """The beat has not ended, and shall not be waited for."""


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
            begun_us = SYSTEM.mono_us()
            try:
                answer = self.beat(self._connection or self._connect())
            except BeatStopped:
                break
            except (BeatFailed, ConnectFailed) as error:
                if not isinstance(error, ClientsKeptOut):
                    self._close()
                self._record.failure(self.record_kind, begun_us, clean(_message(error)))
                self._stop.wait(RETRY_S if begun_us - answered_us < LONG_OUTAGE_S * 1e6 else LONG_RETRY_S)
                continue
            answered_us = begun_us
            self._record.beat(self.record_kind, begun_us, answer)
            self._stop.wait(INTERVAL_S - (SYSTEM.mono_us() - begun_us) / 1e6)
        self.finish()
        self._close()

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        return self._execute_beat(connection, table.READ_BEAT)

    def finish(self) -> None:
        """What is done before the connection is closed."""

    def _execute_beat(self, connection: PGconn, statement: str) -> Mapping[str, str]:
        """The row of a beat. Raises Held where there is none."""
        if not (row := self._execute(connection, statement)):
            raise ClientsKeptOut(KEPT_OUT_MESSAGE)
        return row

    def _connect(self) -> PGconn:
        failure = ConnectFailed("other", "no host to connect to")
        for host in _split_hosts(resolve_hosts({**self._options})):
            try:
                conninfo = monitor_conninfo(host, application_name=_APPLICATION)
                self._connection = open_connection(conninfo, CONNECT_S, SYSTEM)
                return self._connection
            except ConnectFailed as error:
                failure = error
        raise failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    def _execute(self, connection: PGconn, statement: str, until_us: int | None = None) -> dict[str, str]:
        """The last row of the statements, without NULLs. Without `until_us` it waits until it shall end."""
        from psycopg import OperationalError
        from psycopg.pq import DiagnosticField

        row: dict[str, str] = {}
        failure: PGresult | None = None
        try:
            connection.send_query(statement.encode())
            while True:
                while connection.is_busy():
                    self._wait(connection.socket, until_us)
                    connection.consume_input()
                result = connection.get_result()
                if result is None:
                    break
                if result.error_message:
                    failure = result
                elif result.ntuples:
                    row = _row(result)
        except OperationalError as error:
            raise BeatFailed(message_of(connection) or str(error)) from None
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
    """Its beats are acknowledged by a server that may write, once their commit is durable."""

    record_kind = WRITE

    def __init__(self, conninfo: str, run: str, record: BeatRecord, stop: threading.Event) -> None:
        super().__init__(conninfo, record, stop)
        self._run = run
        self._target: table.WriteTarget | None = None
        self._has_row = False

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        if self._target is None:
            self._target = table.choose_target(self._execute(connection, table.TARGET_FACTS))
            if self._target.create:
                return self._create_and_write(connection, self._target.create)
            if self._target.advisory:
                self._record.put("advisory", self._target.advisory)
        if self._target.advisory:
            return self._execute_beat(connection, table.WAL_MESSAGE_BEAT)
        try:
            answer = self._execute_beat(connection, table.write_beat(self._run))
        except BeatFailed as error:
            if error.code in ("42P01", "3F000"):  # the table is gone: a failover lost it, or somebody dropped it
                self._target = None
            raise
        self._has_row = True
        return answer

    def _create_and_write(self, connection: PGconn, create: str) -> Mapping[str, str]:
        """Make the table and write its row. Refused by a rule of the database: there is no table then."""
        self._target = None
        try:
            answer = self._execute_beat(connection, table.write_beat(self._run, create))
        except BeatFailed as error:
            if error.code[:2] not in ("42", "P0") or error.code in ("42P06", "42P07", "42710"):
                raise  # what is not there now, or was made by another heartbeat meanwhile, is asked for again
            self._target = table.WriteTarget(advisory=f"the table cannot be made: {error}")
            self._record.put("advisory", self._target.advisory)
            return self._execute_beat(connection, table.WAL_MESSAGE_BEAT)
        self._target, self._has_row = table.WriteTarget(), True
        return answer

    def finish(self) -> None:
        """Remove the row, and the table and schema where a heartbeat made them and nobody else uses them."""
        if not self._has_row:
            return
        try:
            self._remove()
        except (BeatFailed, ConnectFailed) as error:
            self._record.put("left", f"{table.TABLE} stays where it is: {error}; remove it with: "
                             f"drop schema {table.SCHEMA} cascade")  # fmt: skip

    def _remove(self) -> None:
        if self._connection is not None and self._connection.transaction_status:
            self._close()  # a beat is under way, perhaps held by a pooler
        connection = self._connection or self._connect()
        until_us = SYSTEM.mono_us() + int(REMOVE_S * 1e6)
        self._execute(connection, table.remove_rows(self._run), until_us)
        ours = self._execute(connection, table.CREATED_BY_HEARTBEAT, until_us)
        if ours.get("table") == "true":
            self._execute(connection, table.LOCK, until_us)
            if self._execute(connection, table.ROWS, until_us).get("rows") != "0":
                self._execute(connection, "ROLLBACK", until_us)
                return  # they are of another heartbeat, which removes the table when it ends
            self._execute(connection, table.DROP_TABLE, until_us)
        if ours.get("schema") == "true":
            try:
                self._execute(connection, table.DROP_SCHEMA, until_us)
            except BeatFailed as error:
                if error.code != "2BP01":  # dependent_objects_still_exist: somebody keeps more in it
                    raise


def _message(error: BeatFailed | ConnectFailed) -> str:
    return error.message if isinstance(error, ConnectFailed) else str(error)


def _split_hosts(options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """One after the other: each gets the whole time for connecting."""
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
