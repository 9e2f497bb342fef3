"""The plan of a job as it is found: at once, once the archive's table of contents is written, or from the catalog."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from msgspec import structs

from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean
from dba_console.jobs.archives import dump_plan
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import (
    DumpEntry,
    DumpPlan,
    TableSize,
    plan_from_tables,
    read_list,
    with_table_sizes,
)
from dba_console.jobs.archives.toc import ArchiveError
from dba_console.jobs.following.database_catalog import CatalogAnswer, CatalogReader, CatalogTable
from dba_console.jobs.following.object_activity import PlanIndex
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.program_arguments import ProgramArguments
from dba_console.jobs.following.running_programs import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram

# Where the plan of a job comes from: the archive that is written or read, else the tables of its database.
#
# Reads files: in a lane only. Nothing is opened that is no regular file or directory; a pipe can only be read once.

LIST_SIZE = 64 << 20
"""Bytes of a list (pg_restore -L) that are read."""
DATA = ("TABLE DATA", "BLOBS")
_PATTERN_CHARACTERS = frozenset('*?"[]|()$')
"""In a pattern of pg_dump; a name with one of them is not understood here."""


class ObjectListUnavailable(ConsoleError):
    """There is none; the message says why."""


def archive_path(program: RunningProgram, flow: DataFlow) -> str | None:
    """The archive it writes (a directory, its table of contents first) or reads; None where there is none."""
    arguments = program.arguments
    if program.kind == "pg_dump":
        if arguments.format not in ("directory", "custom"):
            return None
        written = [one.path for one in flow.outputs if one.pid == program.pid and not one.deleted]
        return program.absolute_path(arguments.output) if arguments.output is not None else next(iter(written), None)
    if program.kind != "pg_restore":
        return None
    if arguments.input is not None:
        return program.absolute_path(arguments.input)
    own = [one for one in flow.inputs if one.pid in program.pids and not one.deleted]
    return own[0].path if own else None


def plan_of_archive(program: RunningProgram, path: str) -> DumpPlan:
    """What is to be done with the archive, by the program's arguments. Raises NoPlan."""
    place = program.root + path
    try:
        mode = os.stat(place).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ObjectListUnavailable(f"{clean(path)} is neither a file nor a directory")
        plan = open_archive(place)
    except ArchiveError as error:
        raise ObjectListUnavailable(clean(error.message)) from None
    except OSError as error:
        raise ObjectListUnavailable(f"{clean(path)} cannot be read: {error.strerror or error}") from None
    if program.kind == "pg_dump":
        return _keep_entries(plan, [entry for entry in plan.entries if entry.desc in DATA])
    return select_restored(plan, program)


def select_restored(plan: DumpPlan, program: RunningProgram) -> DumpPlan:
    """The part of the archive that pg_restore was asked for. Raises NoPlan where that is not understood here."""
    arguments = program.arguments
    ids = None if arguments.use_list is None else _read_list_file(program, arguments.use_list)
    part = dump_plan.select_entries(plan, ids=ids, data_only=arguments.data_only, schema_only=arguments.schema_only)
    entries = list(part.entries)
    if arguments.schemas:
        entries = [entry for entry in entries if entry.schema in arguments.schemas]
    if arguments.tables:
        entries = [entry for entry in entries if _is_of_tables(entry, arguments)]
    understood = (
        arguments.use_list or arguments.data_only or arguments.schema_only or arguments.schemas or arguments.tables
    )
    if arguments.selected and not understood:
        raise ObjectListUnavailable(
            "it restores a part of the archive only, and which is not understood from its arguments here"
        )
    return _keep_entries(plan, entries)


def select_dumped_tables(tables: Sequence[CatalogTable], arguments: ProgramArguments) -> list[CatalogTable]:
    """The tables a dump was asked for. Raises NoPlan where patterns or exceptions say which."""
    if not arguments.selected:
        return list(tables)
    names = (*arguments.tables, *arguments.schemas)
    if not names or arguments.schema_only or any(_PATTERN_CHARACTERS.intersection(name) for name in names):
        raise ObjectListUnavailable(
            "it dumps a part of the database, and which is not understood from its arguments here"
        )
    wanted = {tuple(name.split(".", 1)) if "." in name else (None, name) for name in arguments.tables}
    return [
        one
        for one in tables
        if (not arguments.schemas or one.schema in arguments.schemas)
        and (not wanted or (one.schema, one.name) in wanted or (None, one.name) in wanted)
    ]


def _is_of_tables(entry: DumpEntry, arguments: ProgramArguments) -> bool:
    """-t of pg_restore means the table and its data alone, neither indexes nor keys (pg_backup_archiver.c)."""
    return entry.tag in arguments.tables and entry.desc in ("TABLE", "TABLE DATA", "VIEW", "MATERIALIZED VIEW",
                                                            "MATERIALIZED VIEW DATA", "FOREIGN TABLE", "SEQUENCE",
                                                            "SEQUENCE SET")  # fmt: skip


def _read_list_file(program: RunningProgram, written: str) -> set[int]:
    path = program.absolute_path(written)
    if path is None:
        raise ObjectListUnavailable("its list (-L) cannot be found: its directory is not known")
    place = program.root + path
    try:
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise ObjectListUnavailable("its list (-L) is no file and can only be read once")
        with open(place, "rb") as file:
            return set(read_list(file.read(LIST_SIZE).decode("utf-8", "replace")))
    except OSError as error:
        raise ObjectListUnavailable(
            f"its list (-L {clean(written)}) cannot be read: {error.strerror or error}"
        ) from None


def _keep_entries(plan: DumpPlan, entries: list[DumpEntry]) -> DumpPlan:
    kept = {entry.dump_id for entry in entries}
    if len(kept) == len(plan.entries):
        return plan
    return structs.replace(
        plan,
        entries=tuple(
            structs.replace(entry, needs=tuple(need for need in entry.needs if need in kept)) for entry in entries
        ),
    )


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
