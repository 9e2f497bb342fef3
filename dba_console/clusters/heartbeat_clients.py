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
from dba_console.clusters.heartbeat_record import READ, WRITE, Record
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
_VANISHED = {
    "keepalives_idle": "1", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "5000",
}  # fmt: skip
"""A host that vanished is noticed after 5 s; a pooler that holds a beat goes on answering on TCP's level."""
_APPLICATION = "dba-console:cutover-heartbeat"
"""A session of the cutover: it is not ended with those of clients, but holds its beats while these are kept out."""
KEPT_OUT = "the database takes no connections: its CONNECTION LIMIT is 0"


class Failed(Exception):
    """A beat that was not acknowledged; `code` is the SQLSTATE where the server sent one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(clean(redact(plain_message(message))))
        self.code = code


class Held(Failed):
    """Clients are kept out. The connection stays."""


class Stopped(Exception):
    """The beat has not ended, and shall not be waited for."""


class Beater:
    """One connection and its beats."""

    sign = READ

    def __init__(self, conninfo: str, record: Record, stop: threading.Event) -> None:
        self._given = {**_VANISHED, **parse_conninfo(conninfo)}
        self._record, self._stop = record, stop
        self._connection: PGconn | None = None

    def run(self) -> None:
        answered_us = SYSTEM.mono_us()
        while not self._stop.is_set():
            begun_us = SYSTEM.mono_us()
            try:
                answer = self.beat(self._connection or self._connect())
            except Stopped:
                break
            except (Failed, ConnectFailed) as error:
                if not isinstance(error, Held):
                    self._close()
                self._record.failure(self.sign, begun_us, clean(_message(error)))
                self._stop.wait(RETRY_S if begun_us - answered_us < LONG_OUTAGE_S * 1e6 else LONG_RETRY_S)
                continue
            answered_us = begun_us
            self._record.beat(self.sign, begun_us, answer)
            self._stop.wait(INTERVAL_S - (SYSTEM.mono_us() - begun_us) / 1e6)
        self.end()
        self._close()

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        return self._acknowledged(connection, table.READ)

    def end(self) -> None:
        """What is done before the connection is closed."""

    def _acknowledged(self, connection: PGconn, statement: str) -> Mapping[str, str]:
        """The row of a beat. Raises Held where there is none."""
        if not (row := self._ask(connection, statement)):
            raise Held(KEPT_OUT)
        return row

    def _connect(self) -> PGconn:
        failure = ConnectFailed("other", "no host to connect to")
        for host in _hosts(resolve_hosts({**self._given})):
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

    def _ask(self, connection: PGconn, statement: str, until_us: int | None = None) -> dict[str, str]:
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
            raise Failed(message_of(connection) or str(error)) from None
        if failure is None:
            return row
        code, text = (failure.error_field(one) for one in (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY))
        raise Failed(decode(text or failure.error_message).strip(), decode(code or b""))

    def _wait(self, descriptor: int, until_us: int | None) -> None:
        at = SYSTEM.mono_us() + int(CHECK_S * 1e6)
        if wait_for(descriptor, writing=False, until_us=at if until_us is None else min(at, until_us), clock=SYSTEM):
            return
        if until_us is None and self._stop.is_set():
            raise Stopped
        if until_us is not None and SYSTEM.mono_us() >= until_us:
            raise Failed(f"no answer within {REMOVE_S:g} s")


class Writer(Beater):
    """Its beats are acknowledged by a server that may write, once their commit is durable."""

    sign = WRITE

    def __init__(self, conninfo: str, run: str, record: Record, stop: threading.Event) -> None:
        super().__init__(conninfo, record, stop)
        self._run = run
        self._place: table.Place | None = None
        self._wrote = False

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        if self._place is None:
            self._place = table.place(self._ask(connection, table.FACTS))
            if self._place.create:
                return self._first(connection, self._place.create)
            if self._place.advisory:
                self._record.put("advisory", self._place.advisory)
        if self._place.advisory:
            return self._acknowledged(connection, table.MESSAGE)
        try:
            answer = self._acknowledged(connection, table.write(self._run))
        except Failed as error:
            if error.code in ("42P01", "3F000"):  # the table is gone: a failover lost it, or somebody dropped it
                self._place = None
            raise
        self._wrote = True
        return answer

    def _first(self, connection: PGconn, create: str) -> Mapping[str, str]:
        """Make the table and write its row. Refused by a rule of the database: there is no table then."""
        self._place = None
        try:
            answer = self._acknowledged(connection, table.write(self._run, create))
        except Failed as error:
            if error.code[:2] not in ("42", "P0") or error.code in ("42P06", "42P07", "42710"):
                raise  # what is not there now, or was made by another heartbeat meanwhile, is asked for again
            self._place = table.Place(advisory=f"the table cannot be made: {error}")
            self._record.put("advisory", self._place.advisory)
            return self._acknowledged(connection, table.MESSAGE)
        self._place, self._wrote = table.Place(), True
        return answer

    def end(self) -> None:
        """Remove the row, and the table and schema where a heartbeat made them and nobody else uses them."""
        if not self._wrote:
            return
        try:
            self._remove()
        except (Failed, ConnectFailed) as error:
            self._record.put("left", f"{table.TABLE} stays where it is: {error}; remove it with: "
                             f"drop schema {table.SCHEMA} cascade")  # fmt: skip

    def _remove(self) -> None:
        if self._connection is not None and self._connection.transaction_status:
            self._close()  # a beat is under way, perhaps held by a pooler
        connection = self._connection or self._connect()
        until_us = SYSTEM.mono_us() + int(REMOVE_S * 1e6)
        self._ask(connection, table.remove(self._run), until_us)
        ours = self._ask(connection, table.OURS, until_us)
        if ours.get("table") == "true":
            self._ask(connection, table.LOCK, until_us)
            if self._ask(connection, table.ROWS, until_us).get("rows") != "0":
                self._ask(connection, "ROLLBACK", until_us)
                return  # they are of another heartbeat, which removes the table when it ends
            self._ask(connection, table.DROP_TABLE, until_us)
        if ours.get("schema") == "true":
            try:
                self._ask(connection, table.DROP_SCHEMA, until_us)
            except Failed as error:
                if error.code != "2BP01":  # dependent_objects_still_exist: somebody keeps more in it
                    raise


def _message(error: Failed | ConnectFailed) -> str:
    return error.message if isinstance(error, ConnectFailed) else str(error)


def _hosts(given: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """One after the other: each gets the whole time for connecting."""
    lists = {name: given[name].split(",") for name in ("host", "hostaddr", "port") if given.get(name)}
    for number in range(max((len(values) for values in lists.values()), default=1)):
        own = {name: values[number] if len(values) > 1 else values[0] for name, values in lists.items()}
        yield {**given, **own}


def _row(result: PGresult) -> dict[str, str]:
    return {
        decode(result.fname(column) or b""): decode(value)
        for column in range(result.nfields)
        if (value := result.get_value(result.ntuples - 1, column)) is not None
    }
