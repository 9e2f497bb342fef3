"""The server as these programs ask it: one short, read-only connection that waits for no lock.

Used by programs that end, and never by the agent: a wait here holds up nobody but who called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import psycopg.sql
from psycopg.rows import tuple_row

from dba_console.actions.deadline_connection import DeadlineConnection, DeadlineExceeded, connect
from dba_console.agent.runs.command_environment import server_environment
from dba_console.clock import SYSTEM
from dba_console.errors import ConnectError, ConsoleError
from dba_console.sanitize import clean

CONNECT_S = 10
STATEMENT_S = 30
"""For all tables of a large database; each single question of a sweep takes milliseconds."""
LOCK_MS = 100
"""No question of these programs is worth waiting behind a lock."""

_LIMITS = """
select pg_catalog.set_config('statement_timeout', %(statement)s, true),
       pg_catalog.set_config('lock_timeout', %(lock)s, true)
"""
Row = tuple[Any, ...]


class ReadOnlyConnection:
    """An open connection. `version` as libpq counts it: 150018."""

    def __init__(self, connection: DeadlineConnection) -> None:
        self._connection = connection
        self.version = connection.info.server_version
        self.backend = connection.info.backend_pid
        self.host = connection.info.host
        self.database = connection.info.dbname

    @property
    def major(self) -> int:
        return self.version // 10000

    def rows(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> list[Row]:
        """All rows. Raises ConsoleError with the server's own words."""
        try:
            return self._query(sql.encode(), params, STATEMENT_S)
        except psycopg.Error as error:
            if self._connection.closed:
                raise ConnectError(f"the connection to the server is lost: {error_message(error)}") from error
            raise ConsoleError(f"the server refused a question: {error_message(error)}") from error

    def count(self, schema: str, table: str, seconds: float) -> int:
        """Rows of a table, counted. Raises ConsoleError where that takes longer, or cannot be done."""
        query = psycopg.sql.SQL("select count(*) from only {}").format(psycopg.sql.Identifier(schema, table))
        try:
            return int(self._query(query, None, seconds)[0][0])
        except psycopg.Error as error:
            raise ConsoleError(f"the rows of {clean(table)} cannot be counted: {error_message(error)}") from error

    def one(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Row:
        """The first row of what has one."""
        return self.rows(sql, params)[0]

    def _query(
        self, sql: bytes | psycopg.sql.Composed, params: Sequence[Any] | Mapping[str, Any] | None, seconds: float
    ) -> list[Row]:
        """All rows, in a transaction that only reads, with limits of its own: behind a pooler nothing else is ours.

        Raises psycopg.Error; ConnectError where the server is silent.
        """
        self._connection.deadline_us = SYSTEM.mono_us() + int((seconds + CONNECT_S) * 1e6)
        try:
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                self._connection.begin("BEGIN READ ONLY")
                cursor.execute(_LIMITS, {"statement": f"{round(seconds * 1000)}ms", "lock": f"{LOCK_MS}ms"})
                return cursor.execute(sql, params).fetchall()
        except DeadlineExceeded:
            raise ConnectError(f"the server did not answer within {seconds + CONNECT_S:g} s") from None
        finally:
            if not self._connection.closed:
                self._connection.rollback()


@contextmanager
def open_server(conninfo: str, application: str = "dba-console:dumps") -> Iterator[ReadOnlyConnection]:
    """The server of a connection string, completed from libpq's environment. Raises ConnectError saying why not."""
    with closing(open_connection(conninfo, application)) as connection:
        yield ReadOnlyConnection(connection)


def open_connection(conninfo: str, application: str) -> DeadlineConnection:
    """A connection of these programs. Raises ConnectError saying why not."""
    try:
        return connect(conninfo, application=application, database=None, timeout_s=CONNECT_S, clock=SYSTEM)
    except ConnectError as error:
        raise ConnectError(
            f"cannot connect: {error.message}", hint=error.hint or "dba-console doctor tells what is missing"
        ) from error


def client_environment(conninfo: str, **more: str) -> dict[str, str]:
    """What PostgreSQL's own programs need to reach the same server without any argument, and to speak English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, **server_environment(conninfo), "LC_ALL": "C", "PG_COLOR": "never", **more}


def error_message(error: psycopg.Error) -> str:
    """What the server or libpq said, on one line, harmless."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return clean(" ".join(text.split()))
