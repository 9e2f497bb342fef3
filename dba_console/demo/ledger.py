"""A write load that lists each acknowledged commit, to prove that a cutover loses and repeats none.

Each client inserts rows with its own ids, (client, number), and writes a ledger, a file of one line per event: `sent`
before the transaction begins, `acked` after its COMMIT was acknowledged. After an error or a lost connection the
outcome of a transaction is unknown: its id is never sent again. The table has no unique constraint, so that duplicate
rows are visible. It runs as a separate process:

    python -m dba_console.demo.ledger DIRECTORY CONNINFO [--clients N] [--rate PER_S] [--first N]

until SIGTERM. It works behind PgBouncer in transaction mode: it prepares no statement and leaves nothing in a session.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.demo.child_processes import start_child
from dba_console.demo.server_account import clean_environment

if TYPE_CHECKING:
    import psycopg

CLIENTS = 4
RATE_PER_S = 40.0
"""Transactions per second of all clients together: several in flight at any time, hardly any load for the server."""
PAUSE_S = 0.05
"""Pause between two connection attempts, and after an error."""
END_S = 2.0
"""Time limit for a client to end its transaction at SIGTERM; after it the transaction is recorded as unknown."""
READ_S = 60
"""Statement timeout of a verdict."""
_DIGITS = 12
_LIMITS = "connect_timeout=5 keepalives_idle=5 keepalives_interval=5 keepalives_count=3 tcp_user_timeout=15000"
"""A connection whose peer has vanished is closed after 15 s."""
_APPLICATION = "dba-console ledger"

_CREATE = (
    "create table public.ledger (client int not null, number bigint not null, at timestamptz not null default now())",
    "create table public.ledger_totals (client int not null, transactions bigint not null default 0)",
)
_BEGIN = b"begin; set local synchronous_commit = on"
"""An acknowledged commit is one that the server has written, whatever the server's settings are."""
_INSERT = b"insert into public.ledger (client, number) values (%s, %s)"
_UPDATE = b"update public.ledger_totals set transactions = transactions + 1 where client = %s"

TransactionId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LedgerVerdict:
    """Outcome of all transactions in the ledgers of a directory. `lost` and `duplicated` are (client, number)."""

    sent: int
    acknowledged: int
    lost: tuple[TransactionId, ...]
    """Acknowledged, but not in the table."""
    duplicated: tuple[TransactionId, ...]
    """More than once in the table."""
    unknown_committed: int
    """Sent, not acknowledged, and in the table."""
    unknown_missing: int
    """Sent, not acknowledged, and not in the table."""

    @property
    def unknown(self) -> int:
        return self.unknown_committed + self.unknown_missing

    @property
    def all_kept(self) -> bool:
        """True if no acknowledged commit was lost and none is duplicated."""
        return not self.lost and not self.duplicated

    def sentence(self) -> str:
        """Return one line of text, with the first ids of lost and duplicated commits."""
        named = "".join(
            f"; {what}: {_first_ids(ids)}"
            for what, ids in (("lost", self.lost), ("duplicated", self.duplicated))
            if ids
        )
        return (
            f"{self.acknowledged:,} commits acknowledged, {len(self.lost)} lost, {len(self.duplicated)} duplicated; "
            f"{self.unknown} with unknown outcome ({self.unknown_committed} of them committed){named}"
        )


def start_ledger(
    directory: Path, conninfo: str, *, clients: int = CLIENTS, rate_per_s: float = RATE_PER_S, first: int = 1
) -> subprocess.Popen[bytes]:
    """Start the load as a process that ends with this one, or at SIGTERM. Its errors go to `errors.log` in `directory`.
    Call it from the main thread; `conninfo` contains no password (use a passfile). The number of the first client is
    `first`: several loads on one table differ in it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "dba_console.demo.ledger", str(directory), conninfo]
    command += ["--clients", str(clients), "--rate", str(rate_per_s), "--first", str(first)]
    environment = clean_environment(os.environ.get("HOME", "/"))
    with (directory / "errors.log").open("ab") as log:
        return start_child(command, output=log, environment=environment)


def prepare(conninfo: str, numbers: range) -> None:
    """Create missing tables, and a total for each client number. Raises ConnectError or ConsoleError with the server's
    message."""
    import psycopg

    try:
        with _connect(conninfo) as connection, connection.transaction():
            for statement in _CREATE:
                name = statement.split()[2]
                if connection.execute("select to_regclass(%s)", [name]).fetchone() == (None,):
                    connection.execute(statement.encode())
            connection.execute(
                "insert into public.ledger_totals (client) select c from unnest(%s::int[]) c"
                " where not exists (select from public.ledger_totals t where t.client = c)",
                [list(numbers)],
            )
    except psycopg.OperationalError as error:
        raise ConnectError(f"cannot prepare the ledger's tables: {_error_message(error)}") from None
    except psycopg.Error as error:
        raise ConsoleError(f"cannot prepare the ledger's tables: {_error_message(error)}") from None


def ledger_verdict(directory: Path, conninfo: str) -> LedgerVerdict:
    """Compare the ledgers in `directory` with the table. May be called while the load runs: the ledgers are read first.

    Raises ConnectError if the table cannot be read.
    """
    import psycopg

    sent: set[TransactionId] = set()
    acknowledged: set[TransactionId] = set()
    for path in sorted(directory.glob("client-*.ledger")):
        for word, number in _read_events(path):
            (acknowledged if word == "acked" else sent).add((int(path.stem.removeprefix("client-")), number))
    try:
        with _connect(conninfo) as connection, connection.transaction():
            connection.execute(f"set local statement_timeout = '{READ_S}s'".encode())
            rows: list[TransactionId] = connection.execute("select client, number from public.ledger").fetchall()
    except psycopg.Error as error:
        raise ConnectError(f"cannot read the ledger's table: {_error_message(error)}") from None
    rows_by_id = Counter(rows)
    unknown = sent - acknowledged
    committed = sum(1 for one in unknown if one in rows_by_id)
    return LedgerVerdict(
        sent=len(sent),
        acknowledged=len(acknowledged),
        lost=tuple(sorted(acknowledged - rows_by_id.keys())),
        duplicated=tuple(sorted(one for one, times in rows_by_id.items() if times > 1)),
        unknown_committed=committed,
        unknown_missing=len(unknown) - committed,
    )


class _Client:
    """One client: a connection, and its ledger. Runs in its own thread until `stop` is set."""

    def __init__(self, directory: Path, conninfo: str, client: int, period_s: float, stop: threading.Event) -> None:
        path = directory / f"client-{client}.ledger"
        # Numbers continue after those of an earlier process: an id is sent only once.
        self._number = max((number for _, number in _read_events(path)), default=0)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if path.stat().st_size:
            os.write(self._file, b"\n")  # ends a line that a killed process left incomplete
        self._conninfo, self._client, self._period_s, self._stop = conninfo, client, period_s, stop
        self._reported = ""

    def run(self) -> None:
        import psycopg

        connection: psycopg.Connection[Any] | None = None
        due = time.monotonic()
        while not self._stop.is_set():
            try:
                connection = connection or _connect(self._conninfo)
                self._transaction(connection)
            except psycopg.Error as error:
                self._report(error)
                if connection is not None:
                    connection.close()
                connection = None
                self._stop.wait(PAUSE_S)
            # After an outage the rate is the same as before: missed transactions are not caught up.
            due = max(due + self._period_s, time.monotonic())
            self._stop.wait(due - time.monotonic())
        if connection is not None:
            connection.close()

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        self._number += 1
        self._write("sent")
        connection.execute(_BEGIN)
        connection.execute(_INSERT, [self._client, self._number])
        connection.execute(_UPDATE, [self._client])
        if connection.execute(b"commit").statusmessage == "COMMIT":
            self._write("acked")

    def _write(self, word: str) -> None:
        """Write one line with one call, directly to the kernel: killing this process loses none."""
        os.write(self._file, f"{word} {self._number:0{_DIGITS}}\n".encode())

    def _report(self, error: Exception) -> None:
        """Report each new message once: a pooler without a server repeats one many times a second."""
        sentence = _error_message(error)
        if sentence != self._reported:
            self._reported = sentence
            print(f"client {self._client}, after number {self._number}: {sentence}", file=sys.stderr, flush=True)


def _read_events(path: Path) -> Iterator[tuple[str, int]]:
    """Yield whole lines only: numbers have a fixed width, so that a truncated line is not read as another number."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        word, _, number = line.partition(" ")
        if word in ("sent", "acked") and len(number) == _DIGITS and number.isdigit():
            yield word, int(number)


def _connect(conninfo: str) -> psycopg.Connection[Any]:
    import psycopg

    known = psycopg.conninfo.make_conninfo(_LIMITS, application_name=_APPLICATION)
    merged = psycopg.conninfo.make_conninfo(known, **psycopg.conninfo.conninfo_to_dict(conninfo))
    return psycopg.connect(merged, autocommit=True, prepare_threshold=None)


def _first_ids(ids: tuple[TransactionId, ...]) -> str:
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return ", ".join(f"{client}/{number}" for client, number in ids[:5]) + more


def _error_message(error: Exception) -> str:
    return clean(redact(str(error).strip()))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dba_console.demo.ledger")
    parser.add_argument("directory", type=Path, help="directory of the ledgers")
    parser.add_argument("conninfo", help="without a password: use a passfile")
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument(
        "--rate", type=float, default=RATE_PER_S, help="transactions per second of all clients together"
    )
    parser.add_argument("--first", type=int, default=1, help="number of the first client")
    given = parser.parse_args(arguments)
    if given.clients < 1 or given.rate <= 0:
        parser.error("--clients must be at least 1 and --rate above 0")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        numbers = range(given.first, given.first + given.clients)
        _run(given.directory, given.conninfo, numbers, given.clients / given.rate, stop)
    except ConsoleError as error:
        print(error, file=sys.stderr)
        return int(error.code)
    return 0


def _run(directory: Path, conninfo: str, numbers: range, period_s: float, stop: threading.Event) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConsoleError(f"another load is using the ledgers in {directory}") from None
    except OSError as error:
        raise ConsoleError(f"cannot write ledgers in {directory}: {error.strerror}") from None
    prepare(conninfo, numbers)
    loads = [_Client(directory, conninfo, client, period_s, stop) for client in numbers]
    threads = [threading.Thread(target=load.run, daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    stop.wait()
    until = time.monotonic() + END_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
