"""What a database has to be dumped: its tables with their sizes, and a choice of them that stands for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dba_console.dumping.server_connection import ReadOnlyConnection
from dba_console.errors import ConsoleError

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
