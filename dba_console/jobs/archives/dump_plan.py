"""What is to be dumped or restored, object by object: the plan that everything else counts against."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dba_console.jobs.archives.toc import Toc, TocEntry

Phase = Literal["schema", "data", "indexes", "constraints", "rest"]
PHASES: tuple[Phase, ...] = ("schema", "data", "indexes", "constraints", "rest")
"""In the order in which they are begun; with -j the later ones overlap. `schema`: everything before the data;
`indexes`: INDEX, and CONSTRAINT of a primary key, unique or exclusion constraint, which builds one; `constraints`:
foreign keys and checks validated after the data; `rest`: triggers, rights, comments, views filled, statistics."""


class DumpEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One object of an archive's table of contents, or a table of a dump that writes none."""

    dump_id: int
    """As `finished item ID` and the name of a data file have it; counted from 1 where there is no archive."""
    desc: str
    """As pg_restore -l words it: TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: Phase
    schema: str | None = None
    tag: str = ""
    """The name as the archive has it: of a constraint or trigger `TABLE NAME`. Server text: clean() before it
    is shown."""
    owner: str | None = None
    oid: int | None = None
    """Of the object in the database that was dumped."""
    file: str | None = None
    """Of a directory archive: the file of its data, without suffix of compression."""
    offset: int | None = None
    """Of a custom archive: where its data begins, bytes; None where the archive does not know."""
    columns: int | None = None
    """Of its data in COPY's form; None: not known."""
    weight: float | None = None
    """Bytes of its data: on the side of a dump the table's pages with TOAST, on the side of a restore what it takes in
    the archive. An index, key or constraint has that of its table's data, a foreign key the mean of its two.
    None: not known; 0: none."""
    rows: float | None = None
    """Of a table, as estimated where it was dumped."""
    table: int | None = None
    """Dump id of the TABLE DATA it belongs to, itself included; None for what belongs to none."""
    needs: tuple[int, ...] = ()
    """Dump ids it depends on."""


class DumpPlan(Struct, frozen=True, kw_only=True):
    """All of it, in the archive's order."""

    entries: tuple[DumpEntry, ...]
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    """gzip, lz4, zstd, none."""
    database: str | None = None
    """That was dumped."""
    server_version: str | None = None
    dump_version: str | None = None
    """Of the pg_dump that wrote it."""
    created_us: int | None = None


# From a table of contents, or a list of tables, to a plan: which phase each object is of, what it weighs and needs.

_NOT_LISTED = frozenset({"ENCODING", "STDSTRINGS", "SEARCHPATH", "DATABASE", "DATABASE PROPERTIES"})
"""Settings and the database itself: `pg_restore -l` does not list them either."""
_RELATIONS = frozenset({"TABLE", "MATERIALIZED VIEW", "FOREIGN TABLE"})
_DATA = frozenset({"TABLE DATA", "MATERIALIZED VIEW DATA"})
_PHASE_OF_DESC: dict[str, Phase] = {
    "TABLE DATA": "data",
    "BLOBS": "data",
    "INDEX": "indexes",
    "CONSTRAINT": "indexes",
    "FK CONSTRAINT": "constraints",
    "CHECK CONSTRAINT": "constraints",
}
_WEIGHED_BY_TABLE = frozenset({"INDEX", "CONSTRAINT", "FK CONSTRAINT", "CHECK CONSTRAINT"})
"""What reads its table from end to end."""
_BEFORE_DATA = 2


class TableSize(Struct, frozen=True, kw_only=True, gc=False):
    """A table as a database's catalog has it."""

    oid: int
    schema: str
    name: str
    size: int | None = None
    """Bytes of its pages, with TOAST."""
    rows: float | None = None


def phase_of(desc: str, section: int) -> Phase:
    """The phase of an object; `section` as the table of contents numbers it."""
    known = _PHASE_OF_DESC.get(desc)
    if known is not None:
        return known
    return "schema" if section == _BEFORE_DATA else "rest"


def plan_from_toc(toc: Toc, sizes: Mapping[int, int] | None = None, *, form: str | None = None) -> DumpPlan:
    """The plan of an archive; `sizes` are bytes by dump id, `form` what the archive turned out to be."""
    listed = [entry for entry in toc.entries if not _is_hidden(entry)]
    by_id = {entry.dump_id: entry for entry in listed}
    data = _data_by_table(listed, by_id)
    own = set(data.values())
    entries = []
    for entry in listed:
        table = entry.dump_id if entry.dump_id in own else _table_data_of(entry, by_id, data)
        phase = phase_of(entry.desc, entry.section)
        entries.append(
            DumpEntry(
                dump_id=entry.dump_id,
                desc=entry.desc,
                phase=phase,
                schema=entry.schema,
                tag=entry.tag,
                owner=entry.owner,
                oid=entry.oid or None,
                file=entry.file,
                offset=entry.offset,
                columns=entry.columns,
                weight=_weight(entry, table, by_id, data, sizes),
                table=table,
                needs=_needs(entry, by_id, data if phase not in ("schema", "data") else {}),
            )
        )
    return DumpPlan(
        entries=tuple(entries),
        format=form or toc.format,
        compression=toc.compression,
        database=toc.database,
        server_version=_version_number(toc.server_version),
        dump_version=_version_number(toc.dump_version),
        created_us=_created_us(toc),
    )


def plan_from_tables(
    tables: Iterable[TableSize], *, database: str | None = None, server_version: str | None = None
) -> DumpPlan:
    """The plan of a dump that writes no table of contents, or not yet: its tables, numbered from 1."""
    entries = (
        DumpEntry(
            dump_id=number,
            desc="TABLE DATA",
            phase="data",
            schema=table.schema,
            tag=table.name,
            oid=table.oid,
            weight=table.size,
            rows=table.rows,
            table=number,
        )
        for number, table in enumerate(tables, start=1)
    )
    return DumpPlan(entries=tuple(entries), database=database, server_version=server_version)


def with_table_sizes(plan: DumpPlan, tables: Mapping[int, TableSize]) -> DumpPlan:
    """The plan of a dump with what its tables weigh in the database; `tables` by oid. Others keep what they had."""
    sized_tables = {
        entry.dump_id: tables[entry.oid]
        for entry in plan.entries
        if entry.desc == "TABLE DATA" and entry.oid is not None and entry.oid in tables
    }

    def resize(entry: DumpEntry) -> DumpEntry:
        table = sized_tables.get(entry.table) if entry.table is not None else None
        if table is None or (entry.desc != "TABLE DATA" and entry.desc not in _WEIGHED_BY_TABLE):
            return entry
        return replace(entry, weight=table.size, rows=table.rows)

    return replace(plan, entries=tuple(resize(entry) for entry in plan.entries))


def sizes_by_offset(toc: Toc, end: int) -> dict[int, int]:
    """Bytes of each object's data in a custom archive of `end` bytes: from where it begins to where the next does."""
    begins = sorted((entry.offset, entry.dump_id) for entry in toc.entries if entry.offset is not None)
    ends = [*(offset for offset, _ in begins), end][1:]
    return {dump_id: max(0, upto - offset) for (offset, dump_id), upto in zip(begins, ends, strict=True)}


def _is_hidden(entry: TocEntry) -> bool:
    if entry.desc in _NOT_LISTED:
        return True
    return entry.desc in ("COMMENT", "ACL", "SECURITY LABEL") and entry.tag.startswith("DATABASE ") and not entry.schema


def _data_by_table(listed: list[TocEntry], by_id: Mapping[int, TocEntry]) -> dict[int, int]:
    """From a table's dump id to that of its data."""
    found: dict[int, int] = {}
    for entry in listed:
        if entry.desc in _DATA:
            tables = [need for need in entry.needs if _is_table_of(by_id.get(need), entry)]
            found[tables[0] if tables else -entry.dump_id] = entry.dump_id
    return found


def _is_table_of(table: TocEntry | None, entry: TocEntry) -> bool:
    return table is not None and table.desc in _RELATIONS and (table.schema, table.tag) == (entry.schema, entry.tag)


def _table_data_of(entry: TocEntry, by_id: Mapping[int, TocEntry], data: Mapping[int, int]) -> int | None:
    """The data it belongs to. Constraints and triggers are called `TABLE NAME`, and a foreign key needs two tables."""
    if entry.section <= _BEFORE_DATA:
        return None
    tables = [by_id[need] for need in entry.needs if need in by_id and by_id[need].desc in _RELATIONS]
    named = [one for one in tables if entry.tag.startswith(f"{one.tag} ") and one.schema == entry.schema]
    if named:
        return data.get(max(named, key=lambda one: len(one.tag)).dump_id)
    return data.get(tables[0].dump_id) if tables and entry.desc == "INDEX" else None


def _weight(
    entry: TocEntry,
    table: int | None,
    by_id: Mapping[int, TocEntry],
    data: Mapping[int, int],
    sizes: Mapping[int, int] | None,
) -> float | None:
    if entry.desc == "MATERIALIZED VIEW DATA":
        return None
    if entry.desc in _WEIGHED_BY_TABLE:
        if table is None:
            return 0.0
        if sizes is None or by_id[table].desc != "TABLE DATA":
            return None
        if entry.desc == "FK CONSTRAINT":  # its check joins two tables: a small one may refer to a large one
            others = [
                _size_of(sizes, data[need]) or 0.0 for need in entry.needs if need in data and data[need] != table
            ]
            own = _size_of(sizes, table) or 0.0
            return (own + max(others, default=own)) / 2
        return _size_of(sizes, table)
    if entry.desc not in ("TABLE DATA", "BLOBS"):
        return 0.0
    return None if sizes is None else _size_of(sizes, entry.dump_id)


def _size_of(sizes: Mapping[int, int], dump_id: int) -> float | None:
    size = sizes.get(dump_id)
    return None if size is None else float(size)


def _needs(entry: TocEntry, by_id: Mapping[int, TocEntry], data: Mapping[int, int]) -> tuple[int, ...]:
    """What it waits for: after the data, a table's data in place of the table, as pg_restore -j has it."""
    turned = (data.get(need, need) for need in entry.needs if need in by_id)
    return tuple(dict.fromkeys(need for need in turned if need != entry.dump_id))


def _version_number(version: str | None) -> str | None:
    """`15.18` of `15.18 (Debian 15.18-0+deb12u1)`."""
    return version.partition(" ")[0] or None if version else None


def _created_us(toc: Toc) -> int | None:
    year, month, day, hour, minute, second, summer = toc.created
    try:
        return int(time.mktime((year, month, day, hour, minute, second, 0, 0, summer))) * 1_000_000
    except (OverflowError, ValueError):
        return None


# The part of an archive a pg_restore was asked for: by list, by section, data or definitions alone.

_LINE = re.compile(r"^\s*(\d+);", re.MULTILINE)
_IN_DATA = frozenset({"TABLE DATA", "BLOBS", "SEQUENCE SET", "BLOB METADATA"})
_ANY_TIME = frozenset({"STATISTICS DATA", "COMMENT", "ACL", "SECURITY LABEL"})
"""What goes with the object it is of, in whichever section that is."""


def read_list(text: str) -> tuple[int, ...]:
    """The dump ids of a list as `pg_restore -l` writes and `-L` reads it, in its order.

    >>> read_list(";\\n; Selected TOC Entries:\\n11; 0 16385 TABLE DATA public t app\\n;12; 0 1 INDEX - i app")
    (11,)
    """
    return tuple(int(found) for found in _LINE.findall(text))


def select_entries(
    plan: DumpPlan,
    *,
    ids: Collection[int] | None = None,
    sections: Iterable[str] = (),
    data_only: bool = False,
    schema_only: bool = False,
) -> DumpPlan:
    """The plan with only what is asked for; `sections` are pre-data, data, post-data, none of them meaning all."""
    wanted = frozenset(sections)
    wanted_ids = frozenset(ids) if ids is not None else None

    def is_selected(entry: DumpEntry) -> bool:
        if wanted_ids is not None and entry.dump_id not in wanted_ids:
            return False
        section = _section(entry)
        if data_only or schema_only:
            return (section == "data") == data_only
        return not wanted or section in wanted or entry.desc in _ANY_TIME

    return replace(plan, entries=tuple(entry for entry in plan.entries if is_selected(entry)))


def _section(entry: DumpEntry) -> str:
    if entry.desc in _IN_DATA:
        return "data"
    return "pre-data" if entry.phase == "schema" else "post-data"
