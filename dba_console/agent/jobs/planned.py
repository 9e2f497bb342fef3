"""The plan of a job as it is found: at once, once the archive's table of contents is written, or from the catalog."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from dba_console.agent.jobs.planning import NoPlan, archive_of, narrowed, plan_of_archive
from dba_console.agent.jobs.seen import Seen
from dba_console.agent.jobs.sight import Index
from dba_console.archives.entries import Entry, Plan
from dba_console.archives.plan import Table, plan_of_tables, weighed
from dba_console.harmless import clean
from dba_console.probes.jobs.catalog import Catalog, CatalogSeen, TableSeen
from dba_console.probes.jobs.programs import Program

AGAIN = 10
"""Looks after which an archive that could not be read is tried again; one that is being written, each time."""
ASK_AFTER_S = 1.0
"""A job that is over sooner is not worth a connection."""
_MADE = {"index": "INDEX", "constraint": "CONSTRAINT", "foreign key": "FK CONSTRAINT", "check": "CHECK CONSTRAINT"}


class Planned:
    """Used by one thread."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.plan: Plan | None = None
        self.index: Index | None = None
        self.pending = program.kind == "pg_dump"
        """A plan may still come: what is read until then waits for it."""
        self.source: str | None = None
        self.unknown: list[str] = []
        self._archive: Plan | None = None
        self._why: str | None = None
        self._catalog: Catalog | None = None
        self._answer: CatalogSeen | None = None
        self._new = False
        self._looks = 0

    def look(self, seen: Seen, *, heard: bool) -> bool:
        """Look for it; True when it is there since now. `heard`: its messages tell everything else."""
        self._looks += 1
        if self._program.kind == "pg_dump":
            return self.plan is None and self._of_dump(seen)
        if self._program.kind != "pg_restore":
            return False
        if not heard:
            self._ask(seen, made=True)
        if self.plan is not None or self._looks % AGAIN != 1:
            return False
        self._read(seen)
        return self._archive is not None and self._take(self._archive)

    def made(self, seen: Seen) -> Iterator[int]:
        """What the newest answer of the catalog shows to be done; once for each answer."""
        arguments = self._program.arguments
        if not self._new or self._answer is None or self.index is None or arguments.data_only or arguments.clean:
            return
        self._new = False
        for table in self._answer.tables:
            if table.inserted > 0 and not table.view:
                yield from _id(self.index.called("TABLE DATA", table.schema, table.name))
        for one in self._answer.made:
            tag = one.name if one.kind == "index" else f"{one.table} {one.name}"
            yield from _id(self.index.called(_MADE.get(one.kind, ""), one.schema, tag))

    def _of_dump(self, seen: Seen) -> bool:
        """Its objects as its archive lists them, where it writes one, with what they weigh in the database."""
        if self._archive is None:
            self._read(seen)
        if self._answer is None or self._answer.unknown is not None:
            self._ask(seen, made=False)
        if self._answer is None:
            return False
        tables = self._answer.tables
        if self._archive is not None:
            self.pending = False
            bare = structs.replace(self._archive, entries=tuple(map(_unweighed, self._archive.entries)))
            return self._take(weighed(bare, {one.oid: _table(one) for one in tables}))
        if archive_of(self._program, seen.flow) is not None and self._program.arguments.format == "directory":
            return False  # it is still reading the catalog
        self.pending = False
        return bool(tables) and self._of_tables(tables)

    def _of_tables(self, tables: tuple[TableSeen, ...]) -> bool:
        ordered = sorted((one for one in tables if not one.view), key=lambda one: (one.schema, one.name))
        try:
            wanted = narrowed(ordered, self._program.arguments)
        except NoPlan as error:
            self._why = error.message
            return self._explain()
        self.source = "the catalog"
        return self._take(plan_of_tables([_table(one) for one in wanted], database=self._program.arguments.database))

    def _read(self, seen: Seen) -> None:
        path = archive_of(self._program, seen.flow)
        if path is None:
            self._why = None if self._program.kind == "pg_dump" else "what it restores comes out of a pipe"
        else:
            try:
                self._archive, self._why = plan_of_archive(self._program, path), None
                self.source = f"toc.dat of {clean(path)}" if self._archive.format == "directory" else clean(path)
            except NoPlan as error:
                self._why = error.message
        self._explain()

    def _ask(self, seen: Seen, *, made: bool) -> None:
        if self._catalog is None:
            database = next((row.database for row in seen.rows if row.database is not None), None)
            if database is None or seen.running_s < ASK_AFTER_S:
                return
            self._catalog = Catalog(seen.question.conninfo, database, made=made)
        if self._catalog.due:
            self._answer, self._new = self._catalog.look(), True
            self._explain()

    def _explain(self) -> bool:
        """What is to be said of a plan that is not there."""
        refused = None if self._answer is None else self._answer.unknown
        self.unknown = [one for one in (self._why, refused) if one is not None]
        return False

    def _take(self, plan: Plan) -> bool:
        self.plan, self.index = plan, Index(plan)
        if (unweighed := sum(entry.weight is None for entry in plan.entries if entry.phase == "data")) > 0:
            self.unknown.append(f"{unweighed} tables were never analyzed, so what they weigh is not known")
        return True


def _table(seen: TableSeen) -> Table:
    known = seen.bytes > 0 or not seen.inserted
    return Table(
        oid=seen.oid, schema=seen.schema, name=seen.name, size=seen.bytes if known else None, rows=seen.rows
    )  # fmt: skip


def _unweighed(entry: Entry) -> Entry:
    """Of a file that is being written the size says nothing yet; large objects are not weighed."""
    return structs.replace(entry, weight=0.0 if entry.desc == "BLOBS" else None)


def _id(entry: Entry | None) -> Iterator[int]:
    if entry is not None:
        yield entry.dump_id
