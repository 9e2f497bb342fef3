"""The server connection of the dump tools: read-only, with short lock timeouts. Also finds PostgreSQL's client programs
and reads the list of tables that a dump contains.

Used by short-lived programs only, never by the agent: a wait here delays only the caller.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import psycopg.sql
from psycopg.rows import tuple_row

from dba_console.actions.deadline_connection import DeadlineConnection, DeadlineExceeded, connect
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConnectError, ConsoleError, Unsupported
from dba_console.core.sanitize import clean
from dba_console.runbooks.command_environment import server_environment

CONNECT_S = 10
STATEMENT_S = 30
"""Enough for all tables of a large database; the other queries of a sweep take milliseconds."""
LOCK_MS = 100
"""None of these queries is worth waiting for a lock."""

_LIMITS = """
select pg_catalog.set_config('statement_timeout', %(statement)s, true),
       pg_catalog.set_config('lock_timeout', %(lock)s, true)
"""
Row = tuple[Any, ...]


class ReadOnlyConnection:
    """An open connection. `version` has libpq's form: 150018."""

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
        """Return all rows. Raises ConsoleError with the server's message."""
        try:
            return self._query(sql.encode(), params, STATEMENT_S)
        except psycopg.Error as error:
            if self._connection.closed:
                raise ConnectError(f"connection to the server lost: {error_message(error)}") from error
            raise ConsoleError(f"the server rejected a query: {error_message(error)}") from error

    def count(self, schema: str, table: str, seconds: float) -> int:
        """Count the rows of a table. Raises ConsoleError if that takes longer than `seconds` or fails."""
        query = psycopg.sql.SQL("select count(*) from only {}").format(psycopg.sql.Identifier(schema, table))
        try:
            return int(self._query(query, None, seconds)[0][0])
        except psycopg.Error as error:
            raise ConsoleError(f"cannot count the rows of {clean(table)}: {error_message(error)}") from error

    def one(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Row:
        """Return the first row of a query that always has one."""
        return self.rows(sql, params)[0]

    def _query(
        self, sql: bytes | psycopg.sql.Composed, params: Sequence[Any] | Mapping[str, Any] | None, seconds: float
    ) -> list[Row]:
        """Return all rows, in a read-only transaction with its own timeouts: behind a pooler only those are reliable.

        Raises psycopg.Error; ConnectError if the server does not answer.
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
    """Connect with a connection string, completed from libpq's environment. Raises ConnectError with the reason."""
    with closing(open_connection(conninfo, application)) as connection:
        yield ReadOnlyConnection(connection)


def open_connection(conninfo: str, application: str) -> DeadlineConnection:
    """Open a connection. Raises ConnectError with the reason."""
    try:
        return connect(conninfo, application=application, database=None, timeout_s=CONNECT_S, clock=SYSTEM)
    except ConnectError as error:
        raise ConnectError(
            f"cannot connect: {error.message}", hint=error.hint or "dba-console doctor shows what is missing"
        ) from error


def client_environment(conninfo: str, **more: str) -> dict[str, str]:
    """Return the environment for PostgreSQL's programs: the same server without arguments, messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return {**kept, **server_environment(conninfo), "LC_ALL": "C", "PG_COLOR": "never", **more}


def error_message(error: psycopg.Error) -> str:
    """Return the server's or libpq's message on one line, sanitized."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    return clean(" ".join(text.split()))


# PostgreSQL's client programs: the one in PATH, or the newest installed version that can dump this server.

DIRECTORIES = (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin"), ("/usr/local", "pgsql*/bin"))
"""Directories of Debian, Red Hat and source builds."""
BINDIR = "DBA_CONSOLE_PG_BINDIR"
"""Environment variable with the directory to use instead of searching."""


class InstalledProgram(NamedTuple):
    """An installed program with its version; `major` as in libpq."""

    path: str
    major: int
    version: str


def find_program(name: str, *, at_least: int = 0, bindir: str | None = None) -> InstalledProgram:
    """Find a program of major version `at_least` or later: pg_dump refuses a server newer than itself.

    Order: `bindir` or $DBA_CONSOLE_PG_BINDIR, PATH, installed directories (newest first).
    Raises Unsupported if none is found.
    """
    too_old = []
    for path in _candidate_paths(name, bindir or os.environ.get(BINDIR)):
        found = program_at(path)
        if found is not None and found.major >= at_least:
            return found
        if found is not None:
            too_old.append(f"{found.path} is {found.version}")
    details = f": {', '.join(too_old)}" if too_old else ""
    wanted = f" of version {at_least} or later" if at_least else ""
    raise Unsupported(f"no {name}{wanted} found{details}", hint="install PostgreSQL's client programs")


def program_at(path: str) -> InstalledProgram | None:
    """Return the program at a path, None if it does not run."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = version_in(done.stdout)
    return InstalledProgram(path, int(re.findall(r"\d+", found)[0]), found) if found else None


def version_in(text: str) -> str | None:
    """Return the version in `pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.

    >>> version_in("pg_dump (PostgreSQL) 18beta1"), version_in("what?")
    ('18beta1', None)
    """
    match = re.search(r"\(PostgreSQL\)\s+(\d+\S*)", text)
    return match[1] if match else None


def _candidate_paths(name: str, bindir: str | None) -> Iterator[str]:
    if bindir:
        yield os.path.join(bindir, name)
        return
    if (found := shutil.which(name)) is not None:
        yield found
    for parent, pattern in DIRECTORIES:
        directories = sorted(Path(parent).glob(pattern), key=_version_key, reverse=True)
        yield from (str(directory / name) for directory in directories if os.access(directory / name, os.X_OK))


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


# The tables of a database with their sizes, and a representative selection.

_FROM = """
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     left join pg_catalog.pg_class t on t.oid = c.reltoastrelid
where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
  and not exists (select 1 from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_class'::regclass
                  and d.objid = c.oid and d.deptype = 'e')
"""
_MEASURED = (
    "select c.oid::bigint, n.nspname, c.relname, c.reltuples::float8, (pg_catalog.pg_relation_size(c.oid)"
    " + coalesce(pg_catalog.pg_relation_size(t.oid), 0))::bigint" + _FROM
)
_BY_PAGES = (
    "select c.oid::bigint, n.nspname, c.relname, c.reltuples::float8, (c.relpages::bigint"
    " + coalesce(t.relpages, 0)) * current_setting('block_size')::bigint" + _FROM
)
MAX_PATTERNS = 200
"""Maximum number of tables passed to pg_dump by name."""


class DumpTable(NamedTuple):
    """A table whose rows are dumped."""

    oid: int
    schema: str
    name: str
    rows: float | None
    """The server's last estimate; None if there was never one."""
    size: int
    """Bytes of its pages including TOAST; without indexes, which are not dumped."""

    @property
    def pattern(self) -> str:
        """The name as a pattern for pg_dump -t, quoted so that no character is special.

        >>> DumpTable(1, 'a"b', "c.*", None, 0).pattern
        '"a""b"."c.*"'
        """
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


def read_tables(server: ReadOnlyConnection) -> tuple[list[DumpTable], str | None]:
    """Return all tables, largest first, and a note if sizes are the server's estimates.

    The size of an exclusively locked table cannot be read without waiting: then the sizes of the last VACUUM or ANALYZE
    are used for all tables.
    """
    note = None
    try:
        rows = server.rows(_MEASURED)
    except ConsoleError:
        rows = server.rows(_BY_PAGES)
        note = "a table is locked: sizes are those of the last VACUUM or ANALYZE"
    found = [DumpTable(oid, schema, name, None if rows < 0 else rows, size) for oid, schema, name, rows, size in rows]
    return sorted(found, key=lambda table: (-table.size, table.oid)), note


def choose_tables(tables: Sequence[DumpTable], share: float, biggest: int) -> list[DumpTable]:
    """Choose the tables a sweep dumps: the `biggest`, which keep the jobs busy, and a sample of the rest by size.

    `tables` are sorted by size; `share` is of all bytes, 0 to 1. More than MAX_PATTERNS only if all are chosen.

    >>> ts = [DumpTable(n, "s", str(n), None, 100 - n) for n in range(100)]
    >>> [t.oid for t in choose_tables(ts, 0.15, 4)], len(choose_tables(ts, 1.0, 4))
    ([0, 1, 2, 3, 10, 24, 38, 52, 65, 79, 93], 100)
    """
    if share >= 1:
        return list(tables)
    first, rest = list(tables[:biggest]), list(tables[biggest:])
    wanted = share * sum(table.size for table in tables) - sum(table.size for table in first)
    of_rest = sum(table.size for table in rest)
    if wanted <= 0 or of_rest <= 0:
        return first
    count = max(1, min(MAX_PATTERNS - biggest, round(len(rest) * wanted / of_rest)))
    step = len(rest) / count
    return first + [rest[int(step * (number + 0.5))] for number in range(count)]
