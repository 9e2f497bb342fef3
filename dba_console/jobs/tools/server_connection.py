"""The server as these programs ask it: one short, read-only connection that waits for no lock.

Used by programs that end, and never by the agent: a wait here holds up nobody but who called.
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


# PostgreSQL's client programs: the one on the path, or the newest installed that can dump this server.

DIRECTORIES = (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin"), ("/usr/local", "pgsql*/bin"))
"""Where Debian, Red Hat and a build by hand keep them."""
BINDIR = "DBA_CONSOLE_PG_BINDIR"
"""Names a directory to take them from instead of searching."""


class InstalledProgram(NamedTuple):
    """A program that runs here, and its version as libpq counts majors."""

    path: str
    major: int
    version: str


def find_program(name: str, *, at_least: int = 0, bindir: str | None = None) -> InstalledProgram:
    """The program of that name, of major version `at_least` or later: pg_dump refuses a newer server than itself.

    `bindir`, or $DBA_CONSOLE_PG_BINDIR, goes before the path, the path before installed directories, newest first.
    Raises Unsupported where there is none.
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
    raise Unsupported(f"there is no {name}{wanted} here{details}", hint="install PostgreSQL's client programs")


def program_at(path: str) -> InstalledProgram | None:
    """What lies there, None where nothing runs."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = version_in(done.stdout)
    return InstalledProgram(path, int(re.findall(r"\d+", found)[0]), found) if found else None


def version_in(text: str) -> str | None:
    """The version in `pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.

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


# What a database has to be dumped: its tables with their sizes, and a choice of them that stands for all.

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
"""Tables named to pg_dump one by one."""


class DumpTable(NamedTuple):
    """A table whose rows a dump holds."""

    oid: int
    schema: str
    name: str
    rows: float | None
    """As the server last estimated them; None where it never did."""
    size: int
    """Bytes of its pages, those of its TOAST included; indexes are not dumped."""

    @property
    def pattern(self) -> str:
        """As pg_dump -t takes it: quoted, so that no sign in it means anything.

        >>> DumpTable(1, 'a"b', "c.*", None, 0).pattern
        '"a""b"."c.*"'
        """
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


def read_tables(server: ReadOnlyConnection) -> tuple[list[DumpTable], str | None]:
    """All tables, biggest first, and a note where sizes are the server's own estimates.

    A table that is locked exclusively has no size that could be read without waiting: then those of the last VACUUM or
    ANALYZE are taken for all.
    """
    note = None
    try:
        rows = server.rows(_MEASURED)
    except ConsoleError:
        rows = server.rows(_BY_PAGES)
        note = "a table is locked, so sizes are those of the last VACUUM or ANALYZE"
    found = [DumpTable(oid, schema, name, None if rows < 0 else rows, size) for oid, schema, name, rows, size in rows]
    return sorted(found, key=lambda table: (-table.size, table.oid)), note


def choose_tables(tables: Sequence[DumpTable], share: float, biggest: int) -> list[DumpTable]:
    """The tables a sweep dumps: the `biggest`, which keep the jobs busy, and of the rest every so many by size.

    `tables` are sorted by size; `share` is of all bytes, 0 to 1. More than MOST_PATTERNS only where it is all of them.

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
