"""Where the plan of a job comes from: the archive that is written or read, else the tables of its database.

Reads files: in a lane only. Nothing is opened that is no regular file or directory; a pipe can only be read once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from msgspec import structs

from dba_console.archives import restore_selection
from dba_console.archives.archive_file import open_archive
from dba_console.archives.dump_plan import DumpEntry, DumpPlan
from dba_console.archives.restore_selection import read_list
from dba_console.archives.toc import ArchiveError
from dba_console.errors import ConsoleError
from dba_console.probes.jobs.database_catalog import CatalogTable
from dba_console.probes.jobs.pipeline import DataFlow
from dba_console.probes.jobs.program_arguments import ProgramArguments
from dba_console.probes.jobs.running_programs import RunningProgram
from dba_console.sanitize import clean

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
    part = restore_selection.select_entries(
        plan, ids=ids, data_only=arguments.data_only, schema_only=arguments.schema_only
    )
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
