"""The plan of a job as it is found: at once, once the archive's table of contents is written, or from the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from dba_console.agent.jobs.object_activity import PlanIndex
from dba_console.agent.jobs.object_list_sources import (
    ObjectListUnavailable,
    archive_path,
    plan_of_archive,
    select_dumped_tables,
)
from dba_console.agent.jobs.observed_program import ObservedProgram
from dba_console.archives.dump_plan import DumpEntry, DumpPlan
from dba_console.archives.plan_builder import TableSize, plan_from_tables, with_table_sizes
from dba_console.probes.jobs.database_catalog import CatalogAnswer, CatalogReader, CatalogTable
from dba_console.probes.jobs.running_programs import RunningProgram
from dba_console.sanitize import clean

RETRY_EVERY = 10
"""Looks after which an archive that could not be read is tried again; one that is being written, each time."""
QUERY_AFTER_S = 1.0
"""A job that is over sooner is not worth a connection."""
_CREATED_DESCS = {
    "index": "INDEX",
    "constraint": "CONSTRAINT",
    "foreign key": "FK CONSTRAINT",
    "check": "CHECK CONSTRAINT",
}


class ObjectList:
    """Used by one thread."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self.plan: DumpPlan | None = None
        self.index: PlanIndex | None = None
        self.pending = program.kind == "pg_dump"
        """A plan may still come: what is read until then waits for it."""
        self.source: str | None = None
        self.unknown: list[str] = []
        self._archive: DumpPlan | None = None
        self._why: str | None = None
        self._catalog: CatalogReader | None = None
        self._answer: CatalogAnswer | None = None
        self._new = False
        self._looks = 0

    def update(self, seen: ObservedProgram, *, heard: bool) -> bool:
        """Look for it; True when it is there since now. `heard`: its messages tell everything else."""
        self._looks += 1
        if self._program.kind == "pg_dump":
            return self.plan is None and self._update_dump(seen)
        if self._program.kind != "pg_restore":
            return False
        if not heard:
            self._query_catalog(seen, made=True)
        if self.plan is not None or self._looks % RETRY_EVERY != 1:
            return False
        self._read(seen)
        return self._archive is not None and self._set_plan(self._archive)

    def created_objects(self, seen: ObservedProgram) -> Iterator[int]:
        """What the newest answer of the catalog shows to be done; once for each answer."""
        arguments = self._program.arguments
        if not self._new or self._answer is None or self.index is None or arguments.data_only or arguments.clean:
            return
        self._new = False
        for table in self._answer.tables:
            if table.inserted > 0 and not table.is_view:
                yield from _id(self.index.find_by_name("TABLE DATA", table.schema, table.name))
        for one in self._answer.objects:
            tag = one.name if one.kind == "index" else f"{one.table} {one.name}"
            yield from _id(self.index.find_by_name(_CREATED_DESCS.get(one.kind, ""), one.schema, tag))

    def _update_dump(self, seen: ObservedProgram) -> bool:
        """Its objects as its archive lists them, where it writes one, with what they weigh in the database."""
        if self._archive is None:
            self._read(seen)
        if self._answer is None or self._answer.unknown is not None:
            self._query_catalog(seen, made=False)
        if self._answer is None:
            return False
        tables = self._answer.tables
        if self._archive is not None:
            self.pending = False
            bare = structs.replace(self._archive, entries=tuple(map(_unweighed, self._archive.entries)))
            return self._set_plan(with_table_sizes(bare, {one.oid: _table(one) for one in tables}))
        if archive_path(self._program, seen.flow) is not None and self._program.arguments.format == "directory":
            return False  # it is still reading the catalog
        self.pending = False
        return bool(tables) and self._set_from_tables(tables)

    def _set_from_tables(self, tables: tuple[CatalogTable, ...]) -> bool:
        ordered = sorted((one for one in tables if not one.is_view), key=lambda one: (one.schema, one.name))
        try:
            wanted = select_dumped_tables(ordered, self._program.arguments)
        except ObjectListUnavailable as error:
            self._why = error.message
            return self._update_unknown()
        self.source = "the catalog"
        return self._set_plan(
            plan_from_tables([_table(one) for one in wanted], database=self._program.arguments.database)
        )

    def _read(self, seen: ObservedProgram) -> None:
        path = archive_path(self._program, seen.flow)
        if path is None:
            self._why = None if self._program.kind == "pg_dump" else "what it restores comes out of a pipe"
        else:
            try:
                self._archive, self._why = plan_of_archive(self._program, path), None
                self.source = f"toc.dat of {clean(path)}" if self._archive.format == "directory" else clean(path)
            except ObjectListUnavailable as error:
                self._why = error.message
        self._update_unknown()

    def _query_catalog(self, seen: ObservedProgram, *, made: bool) -> None:
        if self._catalog is None:
            database = next((row.database for row in seen.rows if row.database is not None), None)
            if database is None or seen.running_s < QUERY_AFTER_S:
                return
            self._catalog = CatalogReader(seen.question.conninfo, database, with_objects=made)
        if self._catalog.is_due:
            self._answer, self._new = self._catalog.query(), True
            self._update_unknown()

    def _update_unknown(self) -> bool:
        """What is to be said of a plan that is not there."""
        refused = None if self._answer is None else self._answer.unknown
        self.unknown = [one for one in (self._why, refused) if one is not None]
        return False

    def _set_plan(self, plan: DumpPlan) -> bool:
        self.plan, self.index = plan, PlanIndex(plan)
        if (unweighed := sum(entry.weight is None for entry in plan.entries if entry.phase == "data")) > 0:
            self.unknown.append(f"{unweighed} tables were never analyzed, so what they weigh is not known")
        return True


def _table(seen: CatalogTable) -> TableSize:
    known = seen.bytes > 0 or not seen.inserted
    return TableSize(
        oid=seen.oid, schema=seen.schema, name=seen.name, size=seen.bytes if known else None, rows=seen.rows
    )  # fmt: skip


def _unweighed(entry: DumpEntry) -> DumpEntry:
    """Of a file that is being written the size says nothing yet; large objects are not weighed."""
    return structs.replace(entry, weight=0.0 if entry.desc == "BLOBS" else None)


def _id(entry: DumpEntry | None) -> Iterator[int]:
    if entry is not None:
        yield entry.dump_id
