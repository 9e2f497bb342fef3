"""The server connection of the dump tools, with short lock timeouts. Also reads the list of tables that a dump has.

Used by short-lived programs only, never by the agent: a wait here delays only the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg

from dba_console.actions.deadline_connection import DeadlineConnection, connect
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed
from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.dump_plan import TableSize
from dba_console.runbooks.libpq_environment import server_environment

CONNECT_S = 10
TABLES_S = 30
"""Enough for all tables of a large database; the other queries of a sweep take milliseconds."""
LOCK_S = 0.1
"""None of these queries is worth waiting for a lock."""


@contextmanager
def open_server(conninfo: str, application: str = "dba-console:dumps") -> Iterator[QueryConnection]:
    """Connect with a connection string, completed from libpq's environment. Raises ConnectError with the reason."""
    connection = QueryConnection(conninfo, application=application, connect_timeout_s=CONNECT_S, lock_timeout_s=LOCK_S)
    with closing(connection):
        with _hinted():
            connection.read_identity()
        try:
            yield connection
        except StatementFailed as error:
            raise ConsoleError(f"the server rejected a query: {error.message}", hint=error.hint) from error


def open_connection(conninfo: str, application: str) -> DeadlineConnection:
    """Open a connection that may also change something. Raises ConnectError with the reason."""
    with _hinted():
        return connect(conninfo, application=application, database=None, timeout_s=CONNECT_S, clock=SYSTEM)


@contextmanager
def _hinted() -> Iterator[None]:
    try:
        yield
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


# The tables of a database with their sizes, and a representative selection.

_FROM = """
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     left join pg_catalog.pg_class t on t.oid = c.reltoastrelid
where c.relkind = 'r' and c.relpersistence <> 't' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
  and not exists (select 1 from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_class'::regclass
                  and d.objid = c.oid and d.deptype = 'e')
"""
_TABLE = (
    "select c.oid::bigint, n.nspname as schema, c.relname as name,"
    " case when c.reltuples >= 0 then c.reltuples::float8 end as rows, "
)
_MEASURED = (
    _TABLE
    + "(pg_catalog.pg_relation_size(c.oid) + coalesce(pg_catalog.pg_relation_size(t.oid), 0))::bigint as size"
    + _FROM
)
_BY_PAGES = (
    _TABLE + "(c.relpages::bigint + coalesce(t.relpages, 0)) * current_setting('block_size')::bigint as size" + _FROM
)
MAX_PATTERNS = 200
"""Maximum number of tables passed to pg_dump by name."""


class DumpTable(TableSize, frozen=True, gc=False):
    """A table whose rows are dumped."""

    size: int = 0
    """Bytes of its pages including TOAST; without indexes, which are not dumped."""

    @property
    def pattern(self) -> str:
        """The name as a pattern for pg_dump -t, quoted so that no character is special.

        >>> DumpTable(1, 'a"b', "c.*").pattern
        '"a""b"."c.*"'
        """
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


def read_tables(server: QueryConnection) -> tuple[list[DumpTable], str | None]:
    """Return all tables, largest first, and a note if sizes are the server's estimates.

    The size of an exclusively locked table cannot be read without waiting: then the sizes of the last VACUUM or ANALYZE
    are used for all tables.
    """
    note = None
    try:
        rows = server.rows(_MEASURED, timeout_s=TABLES_S, limit=None)
    except ConsoleError:
        rows = server.rows(_BY_PAGES, timeout_s=TABLES_S, limit=None)
        note = "a table is locked: sizes are those of the last VACUUM or ANALYZE"
    found = [DumpTable(**row) for row in rows]
    return sorted(found, key=lambda table: (-table.size, table.oid)), note


def choose_tables(tables: Sequence[DumpTable], share: float, biggest: int) -> list[DumpTable]:
    """Choose the tables a sweep dumps: the `biggest`, which keep the jobs busy, and a sample of the rest by size.

    `tables` are sorted by size; `share` is of all bytes, 0 to 1. More than MAX_PATTERNS only if all are chosen.

    >>> ts = [DumpTable(n, "s", str(n), 100 - n) for n in range(100)]
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
