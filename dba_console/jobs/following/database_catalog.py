"""Query the catalog of a job's database for tables, created objects and size, over a short connection.

The agent's own connection is to another database. This one is opened for each query and closed, rarely enough to cost
the server next to nothing, and never in a reserved connection slot. No relation is opened, so nothing waits for the
locks of a restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.archives.dump_plan import TableSize
from dba_console.watch.probes.postgres.binary_results import Row, decode_name
from dba_console.watch.probes.postgres.connect import MonitorOptions, monitor_conninfo, parse_options
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.connection import MonitorConnection, connect
from dba_console.watch.probes.postgres.pipeline import Command, statement

MAX_PAUSE_US = 20_000_000
"""Longest pause between two queries: each is a connection, and perhaps a line in the server's log."""
MIN_PAUSE_US = 2_000_000
"""Pause at first: for a job of one minute the data must not be much older than 1/20 of it."""
GROWTH = 20
"""In between, the pause is 1/20 of the time since the first query."""
SHARE = 50
"""Queries take at most 1/50 (2 %) of the time."""
RETRY_PAUSE_US = 300_000_000
"""Pause after a failure."""
STATEMENT_S = 5.0
_REGULAR_SLOT = "regular"
LARGE_OBJECTS_OID = 2613
"""Of pg_largeobject."""
LARGE_OBJECT_LIST_OID = 2995
"""Of pg_largeobject_metadata, one row for each."""


class CatalogTable(TableSize, frozen=True, gc=False):
    """A table or materialized view of the job's database, as last estimated (VACUUM, ANALYZE, an index build)."""

    is_view: bool = False
    """A materialized view: a dump does not read it, a restore refreshes it."""
    inserted: int = 0
    """Rows inserted by ended transactions since the last statistics reset."""


@dataclass(frozen=True, slots=True)
class CatalogObject:
    """An existing index or constraint."""

    kind: str
    """index, constraint (primary key, unique, exclusion), foreign key, check."""
    schema: str
    table: str
    name: str
    valid: bool


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """The result of one query."""

    database: str
    at_us: int
    """Monotonic."""
    tables: tuple[CatalogTable, ...] = ()
    objects: tuple[CatalogObject, ...] = ()
    large_object_bytes: int = 0
    """Of the pages of pg_largeobject, as last estimated."""
    large_objects: float | None = None
    """Their number, as last estimated."""
    bytes: int | None = None
    """Size of the whole database on disk, if queried."""
    unknown: str | None = None
    """Why the query failed, a sentence."""


class CatalogReader:
    """Queries one database repeatedly, in a lane. Not thread-safe."""

    def __init__(
        self,
        conninfo: str,
        database: str,
        *,
        with_objects: bool = False,
        size_only: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        """`conninfo`: of the target, any of its databases. `with_objects`: for a restore, query also indexes and
        constraints. `size_only`: query only the database size.
        """
        self._conninfo, self._database, self._clock = conninfo, database, clock
        self._names = ["job_size"] if size_only else ["job_tables", "job_made"] if with_objects else ["job_tables"]
        self._options = MonitorOptions(statement_timeout_s=STATEMENT_S)
        self._due_us = 0
        self._first_us: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether the next query is due."""
        return self._clock.mono_us() >= self._due_us

    def query(self) -> CatalogAnswer:
        """Query now, due or not. Never raises: a failure is part of the answer."""
        begun_us = self._clock.mono_us()
        if self._first_us is None:
            self._first_us = begun_us
        try:
            answer = self._run_query()
            pause_us = min(MAX_PAUSE_US, max(MIN_PAUSE_US, (begun_us - self._first_us) // GROWTH))
        except (ConnectFailed, ConnectionLost) as error:
            answer = self._not_answered(error.message)
            pause_us = RETRY_PAUSE_US
        ended_us = self._clock.mono_us()
        self._due_us = ended_us + max(pause_us, (ended_us - begun_us) * SHARE)
        return answer

    def _run_query(self) -> CatalogAnswer:
        connection = connect(_for_database(self._conninfo, self._database), self._options, self._clock)
        try:
            if connection.through is not None:
                return self._not_answered(f"the connection goes through {connection.through}, which shares sessions")
            if connection.hello.seat != _REGULAR_SLOT:
                return self._not_answered("only reserved connection slots are left")
            rows = dict(zip(self._names, self._rows(connection, self._names), strict=True))
        finally:
            connection.pipeline.close()
        codec = connection.names.codec
        found = [_catalog_table(row, codec) for row in rows.get("job_tables", ())]
        tables = tuple(one for one in found if one.oid not in (LARGE_OBJECTS_OID, LARGE_OBJECT_LIST_OID))
        large = sum(one.size or 0 for one in found if one.oid == LARGE_OBJECTS_OID)
        count = next((one.rows for one in found if one.oid == LARGE_OBJECT_LIST_OID), None)
        made = tuple(_catalog_object(row, codec) for row in rows.get("job_made", ()))
        size = next((row[0] for row in rows.get("job_size", ())), None)
        return CatalogAnswer(self._database, self._clock.mono_us(), tables, made, large, count, size)

    def _rows(self, connection: MonitorConnection, names: Sequence[str]) -> list[list[Row]]:
        """Return the rows of each statement. Raises ConnectionLost if one fails or the server does not answer."""
        version = connection.hello.version_num
        connection.pipeline.send(
            [connection.segment(name, Command(name, statement(name, version) or b"")) for name in names]
        )
        answers = connection.pipeline.collect(self._clock.mono_us() + int(2 * STATEMENT_S * 1e6))
        if len(answers) < len(names):
            raise ConnectionLost(f"no answer within {2 * STATEMENT_S:g} s")
        for answer in answers:
            if answer.error is not None:
                raise ConnectionLost(answer.error.message)
        return [connection.strip(answer.rows)[0] for answer in answers]

    def _not_answered(self, why: str) -> CatalogAnswer:
        text = f"the catalog of {self._database} was not queried: {why}"
        return CatalogAnswer(self._database, self._clock.mono_us(), unknown=text)


def _for_database(conninfo: str, database: str) -> str:
    """Return the target's connection string with another database. Raises ConnectFailed, without the string itself."""
    return monitor_conninfo(parse_options(conninfo), dbname=database)


def _catalog_table(row: Row, codec: str) -> CatalogTable:
    oid, schema, name, kind, pages, toast_pages, rows, inserted, block = row
    pages_with_toast = pages + toast_pages
    return CatalogTable(
        oid, decode_name(schema, codec), decode_name(name, codec),
        size=pages_with_toast * block if pages_with_toast or not inserted else None,
        rows=rows if rows > 0 or (rows == 0 and pages == 0 and inserted == 0) else None,
        compressed=toast_pages > pages, is_view=kind == b"m", inserted=inserted,
    )  # fmt: skip


def _catalog_object(row: Row, codec: str) -> CatalogObject:
    kind, schema, table, name, valid = row
    return CatalogObject(
        kind.decode(), decode_name(schema, codec), decode_name(table, codec), decode_name(name, codec), valid
    )
