"""Find the list of objects (plan) of a running dump or restore: from its archive, else from the database's catalog."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence

from msgspec import structs

from dba_console.core.atomic_files import open_regular
from dba_console.core.errors import ConsoleError
from dba_console.core.sanitize import clean
from dba_console.jobs.archives import dump_plan
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import DumpPlan, plan_from_tables, read_list, with_table_sizes
from dba_console.jobs.archives.toc import ArchiveError, DumpEntry
from dba_console.jobs.following.database_catalog import CatalogAnswer, CatalogReader, CatalogTable
from dba_console.jobs.following.object_activity import PlanIndex
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.program_arguments import ProgramArguments
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram

# Read the plan from the archive that is written or read, else from the tables of the database.
#
# Reads files: only in a lane. Opens only regular files and directories; a pipe can be read only once.

LIST_SIZE = 64 << 20
"""Maximum bytes read of a list (pg_restore -L)."""
DATA = ("TABLE DATA", "BLOBS")
_PATTERN_CHARACTERS = frozenset('*?"[]|()$')
"""Special characters in a pattern of pg_dump; such patterns are not evaluated."""


class ObjectListUnavailable(ConsoleError):
    """The plan is not available; the message is the reason."""


def archive_path(program: RunningProgram, flow: DataFlow) -> str | None:
    """Return the archive the program writes (a directory, its table of contents first) or reads; None without one."""
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
    """Return the plan of the archive for the program's arguments. Raises ObjectListUnavailable."""
    local_path = program.root + path
    try:
        mode = os.stat(local_path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ObjectListUnavailable(f"{clean(path)} is neither a file nor a directory")
        plan = open_archive(local_path)
    except ArchiveError as error:
        raise ObjectListUnavailable(clean(error.message)) from None
    except OSError as error:
        raise ObjectListUnavailable(f"{clean(path)} cannot be read: {error.strerror or error}") from None
    if program.kind == "pg_dump":
        return _keep_entries(plan, [entry for entry in plan.entries if entry.desc in DATA])
    return select_restored(plan, program)


def select_restored(plan: DumpPlan, program: RunningProgram) -> DumpPlan:
    """Return the part of the archive that pg_restore restores. Raises ObjectListUnavailable if that is unknown."""
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
            "it restores only a part of the archive, which cannot be determined from its arguments"
        )
    return _keep_entries(plan, entries)


def select_dumped_tables(tables: Sequence[CatalogTable], arguments: ProgramArguments) -> list[CatalogTable]:
    """Return the tables a dump includes. Raises ObjectListUnavailable if its arguments use patterns or exclusions."""
    if not arguments.selected:
        return list(tables)
    names = (*arguments.tables, *arguments.schemas)
    if not names or arguments.schema_only or any(_PATTERN_CHARACTERS.intersection(name) for name in names):
        raise ObjectListUnavailable(
            "it dumps only a part of the database, which cannot be determined from its arguments"
        )
    wanted = {tuple(name.split(".", 1)) if "." in name else (None, name) for name in arguments.tables}
    return [
        one
        for one in tables
        if (not arguments.schemas or one.schema in arguments.schemas)
        and (not wanted or (one.schema, one.name) in wanted or (None, one.name) in wanted)
    ]


def _is_of_tables(entry: DumpEntry, arguments: ProgramArguments) -> bool:
    """Check whether pg_restore -t selects an entry: only the table and its data, no indexes or keys
    (pg_backup_archiver.c)."""
    return entry.tag in arguments.tables and entry.desc in ("TABLE", "TABLE DATA", "VIEW", "MATERIALIZED VIEW",
                                                            "MATERIALIZED VIEW DATA", "FOREIGN TABLE", "SEQUENCE",
                                                            "SEQUENCE SET")  # fmt: skip


def _read_list_file(program: RunningProgram, written: str) -> set[int]:
    path = program.absolute_path(written)
    if path is None:
        raise ObjectListUnavailable("its list (-L) cannot be found: its working directory is unknown")
    local_path = program.root + path
    try:
        if not stat.S_ISREG(os.stat(local_path).st_mode):
            raise ObjectListUnavailable("its list (-L) is not a regular file and can only be read once")
        with open_regular(local_path) as file:
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
"""Scans after which an unreadable archive is tried again; an archive being written is tried in each scan."""
READ_PAUSE_FACTOR = 20
"""Pause after an attempt to read an archive, as a multiple of its CPU time: its table of contents may be huge."""
QUERY_AFTER_S = 1.0
"""A shorter job does not justify a connection."""
_CREATED_DESCS = {
    "index": "INDEX",
    "constraint": "CONSTRAINT",
    "foreign key": "FK CONSTRAINT",
    "check": "CHECK CONSTRAINT",
}


class ObjectList:
    """Finds the plan of one job, scan by scan. Not thread-safe."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self.plan: DumpPlan | None = None
        self.index: PlanIndex | None = None
        self.pending = program.kind == "pg_dump"
        """A plan may still be found: messages wait for it."""
        self.source: str | None = None
        self.unknown: list[str] = []
        self._archive: DumpPlan | None = None
        self._why: str | None = None
        self._catalog: CatalogReader | None = None
        self._answer: CatalogAnswer | None = None
        self._new = False
        self._scans = 0
        self._read_due_s = 0.0

    def update(self, observed: ObservedProgram, *, messages_complete: bool) -> bool:
        """Try to find the plan; return True if it was found now. `messages_complete`: all its messages are read."""
        self._scans += 1
        if self._program.kind == "pg_dump":
            return self.plan is None and self._update_dump(observed)
        if self._program.kind != "pg_restore":
            return False
        if not messages_complete:
            self._query_catalog(observed, made=True)
        if self.plan is not None or self._scans % RETRY_EVERY != 1:
            return False
        self._read(observed)
        return self._archive is not None and self._set_plan(self._archive)

    @property
    def large_objects(self) -> float | None:
        """The number of large objects in the dumped database, as last estimated, if they are one entry of its plan."""
        if self.plan is None or self._answer is None or not self._answer.large_objects:
            return None
        lists = sum(entry.desc == "BLOBS" for entry in self.plan.entries)
        return self._answer.large_objects if lists == 1 else None

    def created_objects(self, observed: ObservedProgram) -> Iterator[int]:
        """Yield the objects that exist according to the latest catalog answer; once per answer."""
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

    def _update_dump(self, observed: ObservedProgram) -> bool:
        """Find a dump's plan: the objects of its archive, if it writes one, with their sizes in the database."""
        if self._archive is None:
            self._read(observed)
        if self._answer is None or self._answer.unknown is not None:
            self._query_catalog(observed, made=False)
        if self._answer is None:
            return False
        tables = self._answer.tables
        if self._archive is not None:
            self.pending = False
            lists = sum(entry.desc == "BLOBS" for entry in self._archive.entries)
            large = self._answer.large_object_bytes / max(1, lists)
            bare = structs.replace(
                self._archive, entries=tuple(_unweighed(entry, large) for entry in self._archive.entries)
            )
            return self._set_plan(with_table_sizes(bare, {one.oid: one for one in tables}))
        if archive_path(self._program, observed.flow) is not None and self._program.arguments.format == "directory":
            return False  # pg_dump is still reading the catalog
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
        plan = plan_from_tables(wanted, database=self._program.arguments.database)
        large = 0 if self._answer is None or self._program.arguments.selected else self._answer.large_object_bytes
        if large:
            last = DumpEntry(dump_id=len(wanted) + 1, desc="BLOBS", phase="data", weight=float(large))
            plan = structs.replace(plan, entries=(*plan.entries, last))
        return self._set_plan(plan)

    def _read(self, observed: ObservedProgram) -> None:
        if time.monotonic() < self._read_due_s:
            return
        path, begun_s = archive_path(self._program, observed.flow), time.thread_time()
        if path is None:
            self._why = None if self._program.kind == "pg_dump" else "it restores from a pipe"
        else:
            try:
                self._archive, self._why = plan_of_archive(self._program, path), None
                self.source = f"toc.dat of {clean(path)}" if self._archive.format == "directory" else clean(path)
            except ObjectListUnavailable as error:
                self._why = error.message
            self._read_due_s = time.monotonic() + READ_PAUSE_FACTOR * (time.thread_time() - begun_s)
        self._update_unknown()

    def _query_catalog(self, observed: ObservedProgram, *, made: bool) -> None:
        if self._catalog is None:
            database = next((row.database for row in observed.rows if row.database is not None), None)
            if database is None or observed.running_s < QUERY_AFTER_S:
                return
            self._catalog = CatalogReader(observed.request.conninfo, database, with_objects=made)
        if self._catalog.is_due:
            self._answer, self._new = self._catalog.query(), True
            self._update_unknown()

    def _update_unknown(self) -> bool:
        """Update the reasons for a missing plan."""
        refused = None if self._answer is None else self._answer.unknown
        self.unknown = [one for one in (self._why, refused) if one is not None]
        return False

    def _set_plan(self, plan: DumpPlan) -> bool:
        self.plan, self.index = plan, PlanIndex(plan)
        if (unweighed := sum(entry.weight is None for entry in plan.entries if entry.phase == "data")) > 0:
            self.unknown.append(f"{unweighed} tables were never analyzed: their sizes are unknown")
        return True


def _unweighed(entry: DumpEntry, large: float) -> DumpEntry:
    """Remove the weight: the size of a file being written has no meaning. `large`: that of a list of large objects."""
    return structs.replace(entry, weight=large if entry.desc == "BLOBS" else None)


def _id(entry: DumpEntry | None) -> Iterator[int]:
    if entry is not None:
        yield entry.dump_id
