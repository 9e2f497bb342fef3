"""The database a job works at, asked for its tables and what was made in it: over a short connection of its own.

The pinned connection is to another database. So one is opened for the question and closed after it, seldom enough to
cost the server next to nothing, and never in one of the last slots. No relation is opened, so nothing waits for the
locks a restore holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.core.clock import SYSTEM, Clock
from dba_console.watch.probes.postgres.binary_results import Row
from dba_console.watch.probes.postgres.connect import MonitorOptions, monitor_conninfo
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.watch.probes.postgres.connection import MonitorConnection, connect
from dba_console.watch.probes.postgres.oid_names import decode_name
from dba_console.watch.probes.postgres.pipeline import Command, statement

MAX_PAUSE_US = 20_000_000
"""Between two questions, at least: each is a connection, and perhaps a line in the server's log."""
MIN_PAUSE_US = 2_000_000
"""The same at first: what is known of a job of one minute must not be much older than a twentieth of it."""
GROWTH = 20
"""From one to the other it grows with the time asked for: so-and-so-manieth part of it."""
SHARE = 50
"""A question may take at most so-and-so-manieth part of the time: 2 %."""
RETRY_PAUSE_US = 300_000_000
"""After a refusal."""
STATEMENT_S = 5.0
_REGULAR_SLOT = "regular"


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table, or a materialized view, of the job's database."""

    oid: int
    schema: str
    name: str
    is_view: bool
    """Materialized: a dump does not read it, a restore fills it anew."""
    bytes: int
    """Pages of the table and of its TOAST as last estimated (VACUUM, ANALYZE, a build of an index)."""
    rows: float | None
    """As last estimated; None where it never was."""
    inserted: int
    """Rows inserted by transactions that have ended, since the statistics were last reset."""


@dataclass(frozen=True, slots=True)
class CatalogObject:
    """An index or constraint that is there."""

    kind: str
    """index, constraint (primary key, unique, exclusion), foreign key, check."""
    schema: str
    table: str
    name: str
    valid: bool


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """One answer."""

    database: str
    at_us: int
    """Monotonic."""
    tables: tuple[CatalogTable, ...] = ()
    objects: tuple[CatalogObject, ...] = ()
    bytes: int | None = None
    """Of the whole database on disk, where that was asked."""
    unknown: str | None = None
    """Why it was not answered, a sentence."""


class CatalogReader:
    """Asks one database again and again. Used by one thread, in a lane."""

    def __init__(
        self,
        conninfo: str,
        database: str,
        *,
        with_objects: bool = False,
        size_only: bool = False,
        options: MonitorOptions | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """`conninfo`: of the target, any database of it. `with_objects`: a restore, so ask what there is beside tables.
        `size_only`: ask nothing but how large it is.
        """
        self._conninfo, self._database, self._clock = conninfo, database, clock
        self._names = ["job_size"] if size_only else ["job_tables", "job_made"] if with_objects else ["job_tables"]
        usual = options or MonitorOptions()
        self._options = MonitorOptions(
            statement_timeout_s=STATEMENT_S,
            lock_timeout_s=usual.lock_timeout_s,
            connect_timeout_s=usual.connect_timeout_s,
            host_panels=usual.host_panels,
        )
        self._due_us = 0
        self._first_us: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may be asked now."""
        return self._clock.mono_us() >= self._due_us

    def query(self) -> CatalogAnswer:
        """Ask, whether due or not. Never raises: what was refused is told."""
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
                return self._not_answered(f"{connection.through} is between, which lends sessions to others")
            if connection.hello.seat != _REGULAR_SLOT:
                return self._not_answered("only reserved connection slots are left")
            rows = dict(zip(self._names, self._rows(connection, self._names), strict=True))
        finally:
            connection.pipeline.close()
        codec = connection.names.codec
        tables = tuple(_catalog_table(row, codec) for row in rows.get("job_tables", ()))
        made = tuple(_catalog_object(row, codec) for row in rows.get("job_made", ()))
        size = next((row[0] for row in rows.get("job_size", ())), None)
        return CatalogAnswer(self._database, self._clock.mono_us(), tables, made, size)

    def _rows(self, connection: MonitorConnection, names: Sequence[str]) -> list[list[Row]]:
        """Rows of each statement. Raises ConnectionLost where the server refuses one, or does not answer in time."""
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
        text = f"the catalog of {self._database} was not asked: {why}"
        return CatalogAnswer(self._database, self._clock.mono_us(), unknown=text)


def _for_database(conninfo: str, database: str) -> str:
    """The target's connection string with another database. Raises ConnectFailed without repeating it."""
    from psycopg import pq

    try:
        options = pq.Conninfo.parse(conninfo.encode())
    except Exception:
        raise ConnectFailed("other", "not a connection string that libpq can read") from None
    given = {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}
    return monitor_conninfo(given, dbname=database)


def _catalog_table(row: Row, codec: str) -> CatalogTable:
    oid, schema, name, kind, pages, toast_pages, rows, inserted, block = row
    return CatalogTable(
        oid, decode_name(schema, codec), decode_name(name, codec), kind == b"m", (pages + toast_pages) * block,
        rows if rows > 0 or (rows == 0 and pages == 0 and inserted == 0) else None, inserted,
    )  # fmt: skip


def _catalog_object(row: Row, codec: str) -> CatalogObject:
    kind, schema, table, name, valid = row
    return CatalogObject(
        kind.decode(), decode_name(schema, codec), decode_name(table, codec), decode_name(name, codec), valid
    )
