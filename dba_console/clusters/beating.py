"""The heartbeat process: one thread writes, one reads, each on a connection of its own; the main thread records.

`python -m dba_console.clusters.beating DIRECTORY`, started by `heartbeat.start_heartbeat`, which gives the connection
string on standard input. Beats are recorded in memory and appended five times a second: a disk that hangs delays the
record, not the beats. Each line of the record is a JSON array; beats are `["w", begun, ended, server]`, failed ones
`["W", begun, ended, error]`, in microseconds of the monotonic clock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dba_console.clock import SYSTEM
from dba_console.clusters import heartbeat_table as table
from dba_console.clusters.heartbeat import FILE, INTERVAL_S
from dba_console.harmless import clean
from dba_console.keeping.files import write_all
from dba_console.keeping.proc import boot_id, start_ticks
from dba_console.probes.postgres.connecting import message_of, open_connection, wait_for
from dba_console.probes.postgres.conninfo import monitor_conninfo
from dba_console.probes.postgres.encodings import decode
from dba_console.probes.postgres.failures import ConnectFailed
from dba_console.probes.postgres.resolving import resolved
from dba_console.redact import redact
from dba_console.target import parse_conninfo

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

FLUSH_S = 0.2
FIRST_FLUSH_S = 0.01
"""Until the first beat: who started this waits for it."""
CONNECT_S = 1.0
"""For each host of the connection string; a paused pooler may hold a new connection as long."""
RETRY_S = 0.03
"""After a failure: short beside any outage, and no flood of connections."""
REMOVE_S = 3.0
"""For removing row and table at the end, statement by statement."""
FIRST_S = 3.0
"""For the first beat, before the process that started this one gets its answer."""
CHECK_S = 0.1
"""How often a beat that waits notices that it shall end."""
MOST_LINES = 200_000
"""Kept in memory while the disk takes nothing: half an hour of beats."""
_VANISHED = {
    "keepalives_idle": "1", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "5000",
}  # fmt: skip
"""A host that vanished is noticed after 5 s; a pooler that holds a beat goes on answering on TCP's level."""
_APPLICATION = "dba-console:heartbeat"


class Failed(Exception):
    """A beat that was not acknowledged; `code` is the SQLSTATE where the server sent one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(clean(redact(message)))
        self.code = code


class Stopped(Exception):
    """The beat has not ended, and shall not be waited for."""


class Record:
    """The lines that are not on disk yet. Used by all threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._lock = threading.Lock()
        self._lines: list[list[Any]] = []
        self._known: dict[tuple[str, str], int] = {}
        self._ended_us: int | None = None
        self.begun = threading.Event()
        """There was a beat, acknowledged or not."""

    def put(self, *line: Any) -> None:
        with self._lock:
            self._lines.append(list(line))

    def beat(self, sign: str, begun_us: int, answer: Mapping[str, str]) -> None:
        """An acknowledged beat, ended now."""
        ended_us = SYSTEM.mono_us()
        server = {name: answer.get(name) for name in ("address", "port", "in_recovery", "timeline")}
        self.put(sign, begun_us, ended_us, self._number("server", server))
        self.begun.set()

    def failure(self, sign: str, begun_us: int, text: str) -> None:
        self.put(sign.upper(), begun_us, SYSTEM.mono_us(), self._number("error", text))
        self.begun.set()

    def end(self) -> None:
        """Nothing is measured from now on."""
        self._ended_us = SYSTEM.mono_us()

    def flush(self) -> None:
        """Append what is there. What the disk does not take now is kept for the next time."""
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
        """A server or an error by its number; introduced by a line of its own when it is met first."""
        with self._lock:
            key = (kind, json.dumps(value))
            if key not in self._known:
                self._known[key] = len(self._known)
                self._lines.append([kind, self._known[key], value])
            return self._known[key]


class Beater:
    """One connection and its beats."""

    sign = "r"

    def __init__(self, conninfo: str, record: Record, stop: threading.Event) -> None:
        self._given = {**_VANISHED, **parse_conninfo(conninfo)}
        self._record, self._stop = record, stop
        self._connection: PGconn | None = None

    def run(self) -> None:
        while not self._stop.is_set():
            begun_us = SYSTEM.mono_us()
            try:
                answer = self.beat(self._connection or self._connect())
            except Stopped:
                break
            except (Failed, ConnectFailed) as error:
                self._close()
                self._record.failure(self.sign, begun_us, clean(str(error)))
                self._stop.wait(RETRY_S)
                continue
            self._record.beat(self.sign, begun_us, answer)
            self._stop.wait(INTERVAL_S - (SYSTEM.mono_us() - begun_us) / 1e6)
        self.end()
        self._close()

    def beat(self, connection: PGconn) -> Mapping[str, str]:
        return self._ask(connection, table.READ)

    def end(self) -> None:
        """What is done before the connection is closed."""

    def _connect(self) -> PGconn:
        failure = ConnectFailed("other", "no host to connect to")
        for host in _hosts(resolved({**self._given})):
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

    sign = "w"

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
            return self._ask(connection, table.MESSAGE)
        try:
            answer = self._ask(connection, table.write(self._run))
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
            answer = self._ask(connection, table.write(self._run, create))
        except Failed as error:
            if error.code[:2] not in ("42", "P0") or error.code in ("42P06", "42P07", "42710"):
                raise  # what is not there now, or was made by another heartbeat meanwhile, is asked for again
            self._place = table.Place(advisory=f"the table cannot be made: {error}")
            self._record.put("advisory", self._place.advisory)
            return self._ask(connection, table.MESSAGE)
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


def main() -> int:
    """Become the heartbeat of the directory in the first argument."""
    if os.fork():
        os._exit(0)  # who started this waits for this process, and is not the parent of one that lives for hours
    os.chdir("/")
    directory = sys.argv[1]
    order = json.loads(sys.stdin.buffer.read())
    os.environ.update(order["environment"])
    path = os.path.join(directory, FILE)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _answer("")  # another one was started at the same time
            return 0
        header = {
            "pid": os.getpid(), "ticks": start_ticks(os.getpid()), "boot": boot_id(), "wall_us": SYSTEM.wall_us(),
            "mono_us": SYSTEM.mono_us(),
        }  # fmt: skip
        # A line that was cut short by a kill ends here.
        write_all(descriptor, b"\n" + json.dumps(["start", header]).encode() + b"\n")
    except OSError as error:
        _answer(f"the heartbeat cannot write to {path}: {error.strerror}")
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads: `_keep` waits for it
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    record, stop = Record(descriptor), threading.Event()
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    beaters = [Writer(order["conninfo"], name, record, stop), Beater(order["conninfo"], record, stop)]
    threads = [threading.Thread(target=_guarded, args=(one, record, stop), daemon=True) for one in beaters]
    for thread in threads:
        thread.start()
    why = _keep(record, stop, order["life_s"])
    record.end()
    stop.set()
    for thread in threads:
        thread.join(CONNECT_S + REMOVE_S + 1.0)
    record.put("end", why)
    record.flush()
    return 0


def _keep(record: Record, stop: threading.Event, life_s: float) -> str:
    """Write the record until the end; why it ended."""
    begun_us, answered = SYSTEM.mono_us(), False
    while signal.sigtimedwait({signal.SIGTERM}, FLUSH_S if answered else FIRST_FLUSH_S) is None:
        record.flush()
        age_s = (SYSTEM.mono_us() - begun_us) / 1e6
        if not answered and (record.begun.is_set() or age_s > min(FIRST_S, life_s)):
            answered = True
            _answer("")
        if age_s > life_s:
            return f"it had run for {life_s:g} s"
        if stop.is_set():
            return "a defect ended it"
    return "it was stopped"


def _guarded(beater: Beater, record: Record, stop: threading.Event) -> None:
    try:
        beater.run()
    except Exception as error:  # a defect: it must not look like an outage
        record.put("left", f"the heartbeat failed: {type(error).__name__}")
        stop.set()


def _answer(error: str) -> None:
    """One line to the process that started this one; then nothing of it is kept open."""
    with suppress(OSError):
        os.write(1, json.dumps({"error": error}).encode())
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
