"""Where the plan of a job comes from: the archive that is written or read, else the tables of its database.

Reads files: in a lane only. Nothing is opened that is no regular file or directory; a pipe can only be read once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from msgspec import structs

from dba_console.archives import selection
from dba_console.archives.entries import Entry, Plan
from dba_console.archives.place import open_archive
from dba_console.archives.selection import read_list
from dba_console.archives.toc import ArchiveError
from dba_console.errors import ConsoleError
from dba_console.harmless import clean
from dba_console.probes.jobs.arguments import Arguments
from dba_console.probes.jobs.catalog import TableSeen
from dba_console.probes.jobs.pipeline import Flow
from dba_console.probes.jobs.programs import Program

LIST_SIZE = 64 << 20
"""Bytes of a list (pg_restore -L) that are read."""
DATA = ("TABLE DATA", "BLOBS")
_SIGNS = frozenset('*?"[]|()$')
"""In a pattern of pg_dump; a name with one of them is not understood here."""


class NoPlan(ConsoleError):
    """There is none; the message says why."""


def archive_of(program: Program, flow: Flow) -> str | None:
    """The archive it writes (a directory, its table of contents first) or reads; None where there is none."""
    arguments = program.arguments
    if program.kind == "pg_dump":
        if arguments.format not in ("directory", "custom"):
            return None
        written = [one.path for one in flow.writings if one.pid == program.pid and not one.deleted]
        return program.path(arguments.output) if arguments.output is not None else next(iter(written), None)
    if program.kind != "pg_restore":
        return None
    if arguments.input is not None:
        return program.path(arguments.input)
    own = [one for one in flow.readings if one.pid in program.pids and not one.deleted]
    return own[0].path if own else None


def plan_of_archive(program: Program, path: str) -> Plan:
    """What is to be done with the archive, by the program's arguments. Raises NoPlan."""
    place = program.root + path
    try:
        mode = os.stat(place).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise NoPlan(f"{clean(path)} is neither a file nor a directory")
        plan = open_archive(place)
    except ArchiveError as error:
        raise NoPlan(clean(error.message)) from None
    except OSError as error:
        raise NoPlan(f"{clean(path)} cannot be read: {error.strerror or error}") from None
    if program.kind == "pg_dump":
        return _only(plan, [entry for entry in plan.entries if entry.desc in DATA])
    return selected(plan, program)


def selected(plan: Plan, program: Program) -> Plan:
    """The part of the archive that pg_restore was asked for. Raises NoPlan where that is not understood here."""
    arguments = program.arguments
    ids = None if arguments.use_list is None else _listed(program, arguments.use_list)
    part = selection.selected(plan, ids=ids, data_only=arguments.data_only, schema_only=arguments.schema_only)
    entries = list(part.entries)
    if arguments.schemas:
        entries = [entry for entry in entries if entry.schema in arguments.schemas]
    if arguments.tables:
        entries = [entry for entry in entries if _of_tables(entry, arguments)]
    understood = (
        arguments.use_list or arguments.data_only or arguments.schema_only or arguments.schemas or arguments.tables
    )
    if arguments.selected and not understood:
        raise NoPlan("it restores a part of the archive only, and which is not understood from its arguments here")
    return _only(plan, entries)


def narrowed(tables: Sequence[TableSeen], arguments: Arguments) -> list[TableSeen]:
    """The tables a dump was asked for. Raises NoPlan where patterns or exceptions say which."""
    if not arguments.selected:
        return list(tables)
    names = (*arguments.tables, *arguments.schemas)
    if not names or arguments.schema_only or any(_SIGNS.intersection(name) for name in names):
        raise NoPlan("it dumps a part of the database, and which is not understood from its arguments here")
    wanted = {tuple(name.split(".", 1)) if "." in name else (None, name) for name in arguments.tables}
    return [
        one
        for one in tables
        if (not arguments.schemas or one.schema in arguments.schemas)
        and (not wanted or (one.schema, one.name) in wanted or (None, one.name) in wanted)
    ]


def _of_tables(entry: Entry, arguments: Arguments) -> bool:
    """-t of pg_restore means the table and its data alone, neither indexes nor keys (pg_backup_archiver.c)."""
    return entry.tag in arguments.tables and entry.desc in ("TABLE", "TABLE DATA", "VIEW", "MATERIALIZED VIEW",
                                                            "MATERIALIZED VIEW DATA", "FOREIGN TABLE", "SEQUENCE",
                                                            "SEQUENCE SET")  # fmt: skip


def _listed(program: Program, written: str) -> set[int]:
    path = program.path(written)
    if path is None:
        raise NoPlan("its list (-L) cannot be found: its directory is not known")
    place = program.root + path
    try:
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise NoPlan("its list (-L) is no file and can only be read once")
        with open(place, "rb") as file:
            return set(read_list(file.read(LIST_SIZE).decode("utf-8", "replace")))
    except OSError as error:
        raise NoPlan(f"its list (-L {clean(written)}) cannot be read: {error.strerror or error}") from None


def _only(plan: Plan, entries: list[Entry]) -> Plan:
    kept = {entry.dump_id for entry in entries}
    if len(kept) == len(plan.entries):
        return plan
    return structs.replace(
        plan,
        entries=tuple(
            structs.replace(entry, needs=tuple(need for need in entry.needs if need in kept)) for entry in entries
        ),
    )
