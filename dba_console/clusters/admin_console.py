"""A connection to PgBouncer's admin console: its commands, their rows and their errors as sentences."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from dba_console.clock import Clock
from dba_console.config import PoolerConfig
from dba_console.errors import ConnectError, ConsoleError, PermissionDenied
from dba_console.probes.postgres.async_connect import open_connection
from dba_console.probes.postgres.connect_errors import ConnectionLost, plain_message
from dba_console.probes.postgres.conninfo import monitor_conninfo
from dba_console.probes.postgres.name_resolution import resolve_hosts
from dba_console.probes.postgres.simple_query import SimpleResult, receive_answer, send_command
from dba_console.redact import redact
from dba_console.sanitize import clean
from dba_console.target import parse_conninfo

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

ADMIN = "pgbouncer"
"""Its own database and pool."""
ANSWER_S = 3.0
"""For the connection and each question, where only the state is read."""
COMMAND_S = 10.0
"""The same where clients depend on it: RESUME is worth a longer wait on a busy host."""


def open_admin(config: PoolerConfig, clock: Clock, timeout_s: float = ANSWER_S) -> PGconn:
    """A connection to the admin console. Raises ConnectFailed."""
    options = {"dbname": ADMIN, **parse_conninfo(config.dsn)}
    return open_connection(monitor_conninfo(resolve_hosts(options)), timeout_s, clock)


class AdminConsole:
    """One connection to the admin console of a PgBouncer. Not thread-safe; close it, or use it in `with`."""

    def __init__(self, name: str, config: PoolerConfig, clock: Clock) -> None:
        """Raises ConnectError."""
        self._name = name
        self._clock = clock
        try:
            self._connection = open_admin(config, clock, COMMAND_S)
        except ConnectError as error:
            raise ConnectError(f'pooler "{name}": {clean(redact(error.message))}', hint=error.hint) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._connection.finish()

    def execute(self, command: str) -> list[dict[str, str]]:
        """The rows of one command. Raises ConnectError, PermissionDenied, or ConsoleError with PgBouncer's message."""
        self.send(command)
        answer = self.read_answer(COMMAND_S)
        if answer is None:
            raise ConnectError(f'pooler "{self._name}": no answer to {clean(command)} within {COMMAND_S:g} s')
        return self.result_rows(command, answer)

    def send(self, command: str) -> None:
        """Send a command that may wait for clients. Raises ConnectError."""
        try:
            send_command(self._connection, command.encode())
        except ConnectionLost as error:
            raise self._lost(error) from None

    def read_answer(self, timeout_s: float) -> SimpleResult | None:
        """What the command that was sent gave; None: nothing yet. Raises ConnectError."""
        try:
            return receive_answer(self._connection, timeout_s, self._clock)
        except ConnectionLost as error:
            raise self._lost(error) from None

    def result_rows(self, command: str, answer: SimpleResult) -> list[dict[str, str]]:
        """The rows of an answer. Raises PermissionDenied, or ConsoleError with PgBouncer's message."""
        if not answer.error:
            return answer.rows
        message = f'pooler "{self._name}" refused {clean(command)}: {clean(redact(plain_message(answer.error)))}'
        if "admin access needed" in answer.error:  # of stats_users, which may only ask (PgBouncer: src/admin.c)
            raise PermissionDenied(message, hint="add the role of the pooler's dsn to admin_users in pgbouncer.ini")
        raise ConsoleError(message)

    def _lost(self, error: ConnectionLost) -> ConnectError:
        return ConnectError(f'pooler "{self._name}": connection lost: {clean(error.message)}')


def quote_name(name: str) -> str:
    """A database's name as the admin console reads it.

    >>> quote_name('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'
