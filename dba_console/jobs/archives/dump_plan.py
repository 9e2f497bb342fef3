"""The plan of a dump or restore: its objects with phase, weight and dependencies. Progress is measured against it."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dba_console.jobs.archives.toc import BEFORE_DATA, DumpEntry, Toc, is_of_database


class DumpPlan(Struct, frozen=True, kw_only=True):
    """All objects of a dump or restore, in the archive's order."""

    entries: tuple[DumpEntry, ...]
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    """gzip, lz4, zstd, none."""
    database: str | None = None
    """The dumped database."""
    server_version: str | None = None
    dump_version: str | None = None
    """Version of pg_dump."""
    created_us: int | None = None
    database_owner: str | None = None
    database_statements: tuple[str, ...] = ()
    """What `pg_restore --create` would execute for the database itself: it is not among the entries."""


# Build a plan from a table of contents or a list of tables: phase, weight and dependencies of each object.

_NOT_LISTED = frozenset({"ENCODING", "STDSTRINGS", "SEARCHPATH"})
"""Settings; `pg_restore -l` lists neither them nor the database itself."""
_RELATIONS = frozenset({"TABLE", "MATERIALIZED VIEW", "FOREIGN TABLE"})
_DATA = frozenset({"TABLE DATA", "MATERIALIZED VIEW DATA"})
_READ_BY_VIEWS = frozenset({"TABLE", "FOREIGN TABLE", "VIEW", "MATERIALIZED VIEW"})
_WEIGHED_BY_TABLE = frozenset({"INDEX", "CONSTRAINT", "FK CONSTRAINT", "CHECK CONSTRAINT"})
"""Objects whose creation reads the whole table."""


class TableSize(Struct, frozen=True, gc=False):
    """A table with its size from a database's catalog."""

    oid: int
    schema: str
    name: str
    size: int | None = None
    """Bytes of its pages, with TOAST; None if never analyzed."""
    rows: float | None = None
    """The server's last estimate; None if there was never one."""
    compressed: bool = False
    """Most of its pages are TOAST."""


def plan_from_toc(toc: Toc, sizes: Mapping[int, int] | None = None, *, form: str | None = None) -> DumpPlan:
    """Return the plan of an archive; `sizes` are bytes by dump id, `form` is the detected format."""
    listed = [entry for entry in toc.entries if not _is_hidden(entry)]
    by_id = {entry.dump_id: entry for entry in listed}
    data = _data_by_table(listed, by_id)
    partitions = _partitions(listed)
    own = set(data.values())
    entries = []
    for entry in listed:
        table = entry.dump_id if entry.dump_id in own else _table_data_of(entry, by_id, data)
        needs = _needs(entry, by_id, data if entry.phase not in ("schema", "data") else {})
        if entry.desc == "MATERIALIZED VIEW DATA":
            weight = _weight_of_view(entry, by_id, data, partitions, sizes)
        else:
            weight = _weight(entry, table, by_id, data, sizes)
        entries.append(replace(entry, weight=weight, table=table, needs=needs))
    return DumpPlan(
        entries=tuple(entries),
        format=form or toc.format,
        compression=toc.compression,
        database=toc.database,
        server_version=_version_number(toc.server_version),
        dump_version=_version_number(toc.dump_version),
        created_us=_created_us(toc),
        database_owner=next((entry.owner for entry in toc.entries if entry.desc == "DATABASE"), None),
        database_statements=tuple(entry.statement for entry in toc.entries if entry.statement is not None),
    )


def plan_from_tables(tables: Iterable[TableSize], *, database: str | None = None) -> DumpPlan:
    """Return the plan of a dump without a table of contents, or before it is written: its tables, numbered from 1."""
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
            compressed=table.compressed,
        )
        for number, table in enumerate(tables, start=1)
    )
    return DumpPlan(entries=tuple(entries), database=database)


def with_table_sizes(plan: DumpPlan, tables: Mapping[int, TableSize]) -> DumpPlan:
    """Return the plan with the tables' sizes in the database; `tables` by oid. Other entries are unchanged."""
    sized_tables = {
        entry.dump_id: tables[entry.oid]
        for entry in plan.entries
        if entry.desc == "TABLE DATA" and entry.oid is not None and entry.oid in tables
    }

    def resize(entry: DumpEntry) -> DumpEntry:
        table = sized_tables.get(entry.table) if entry.table is not None else None
        if table is None or (entry.desc != "TABLE DATA" and entry.desc not in _WEIGHED_BY_TABLE):
            return entry
        compressed = table.compressed and entry.desc == "TABLE DATA"
        return replace(entry, weight=table.size, rows=table.rows, compressed=compressed)

    return replace(plan, entries=tuple(resize(entry) for entry in plan.entries))


def sizes_by_offset(toc: Toc, end: int) -> dict[int, int]:
    """Return the size of each object's data in a custom archive of `end` bytes: from its offset to the next."""
    begins = sorted((entry.offset, entry.dump_id) for entry in toc.entries if entry.offset is not None)
    ends = [*(offset for offset, _ in begins), end][1:]
    return {dump_id: max(0, upto - offset) for (offset, dump_id), upto in zip(begins, ends, strict=True)}


def _is_hidden(entry: DumpEntry) -> bool:
    return entry.desc in _NOT_LISTED or (is_of_database(entry.desc, entry.tag) and not entry.schema)


def _data_by_table(listed: list[DumpEntry], by_id: Mapping[int, DumpEntry]) -> dict[int, int]:
    """Map a table's dump id to that of its data."""
    found: dict[int, int] = {}
    for entry in listed:
        if entry.desc in _DATA:
            tables = [need for need in entry.needs if _is_table_of(by_id.get(need), entry)]
            found[tables[0] if tables else -entry.dump_id] = entry.dump_id
    return found


def _is_table_of(table: DumpEntry | None, entry: DumpEntry) -> bool:
    return table is not None and table.desc in _RELATIONS and (table.schema, table.tag) == (entry.schema, entry.tag)


def _table_data_of(entry: DumpEntry, by_id: Mapping[int, DumpEntry], data: Mapping[int, int]) -> int | None:
    """Return the table data an entry belongs to. Constraints and triggers are named `TABLE NAME`; a foreign key needs
    two tables."""
    if entry.section <= BEFORE_DATA:
        return None
    tables = [by_id[need] for need in entry.needs if need in by_id and by_id[need].desc in _RELATIONS]
    named = [one for one in tables if entry.tag.startswith(f"{one.tag} ") and one.schema == entry.schema]
    if named:
        return data.get(max(named, key=lambda one: len(one.tag)).dump_id)
    return data.get(tables[0].dump_id) if tables and entry.desc == "INDEX" else None


def _weight(
    entry: DumpEntry,
    table: int | None,
    by_id: Mapping[int, DumpEntry],
    data: Mapping[int, int],
    sizes: Mapping[int, int] | None,
) -> float | None:
    if entry.desc in _WEIGHED_BY_TABLE:
        if table is None:
            return 0.0
        if sizes is None or by_id[table].desc != "TABLE DATA":
            return None
        if entry.desc == "FK CONSTRAINT":  # its check joins two tables: a small one may reference a large one
            others = [
                _size_of(sizes, data[need]) or 0.0 for need in entry.needs if need in data and data[need] != table
            ]
            own = _size_of(sizes, table) or 0.0
            return (own + max(others, default=own)) / 2
        return _size_of(sizes, table)
    if entry.desc not in ("TABLE DATA", "BLOBS"):
        return 0.0
    return None if sizes is None else _size_of(sizes, entry.dump_id)


def _partitions(listed: list[DumpEntry]) -> dict[int, list[int]]:
    """Map the dump ids of tables to those of their partitions."""
    found: dict[int, list[int]] = {}
    for entry in listed:
        if entry.desc == "TABLE ATTACH" and len(entry.needs) >= 2:
            found.setdefault(entry.needs[0], []).append(entry.needs[1])
    return found


def _weight_of_view(
    entry: DumpEntry,
    by_id: Mapping[int, DumpEntry],
    data: Mapping[int, int],
    partitions: Mapping[int, list[int]],
    sizes: Mapping[int, int] | None,
) -> float | None:
    """Return the bytes a materialized view is filled from: those of the tables it reads, directly or by other views."""
    if sizes is None:
        return None
    seen: set[int] = set()
    left = [need for need in entry.needs if need in by_id]
    while left:
        dump_id = left.pop()
        if dump_id in seen or by_id[dump_id].desc not in _READ_BY_VIEWS:
            continue
        seen.add(dump_id)
        more = partitions.get(dump_id, []) if by_id[dump_id].desc == "TABLE" else by_id[dump_id].needs
        left += [need for need in more if need in by_id]
    return sum(_size_of(sizes, data[dump_id]) or 0.0 for dump_id in seen if dump_id in data)


def _size_of(sizes: Mapping[int, int], dump_id: int) -> float | None:
    size = sizes.get(dump_id)
    return None if size is None else float(size)


def _needs(entry: DumpEntry, by_id: Mapping[int, DumpEntry], data: Mapping[int, int]) -> tuple[int, ...]:
    """Return its dependencies; after the data phase a table's data replaces the table, as in pg_restore -j."""
    turned = (data.get(need, need) for need in entry.needs if need in by_id)
    return tuple(dict.fromkeys(need for need in turned if need != entry.dump_id))


def _version_number(version: str | None) -> str | None:
    """Return `15.18` from `15.18 (Debian 15.18-0+deb12u1)`."""
    return version.partition(" ")[0] or None if version else None


def _created_us(toc: Toc) -> int | None:
    year, month, day, hour, minute, second, summer = toc.created
    try:
        return int(time.mktime((year, month, day, hour, minute, second, 0, 0, summer))) * 1_000_000
    except (OverflowError, ValueError):
        return None


# Select the part of an archive that a pg_restore restores: by list, data only or schema only.

_LINE = re.compile(r"^\s*(\d+);", re.MULTILINE)
_IN_DATA = frozenset({"TABLE DATA", "BLOBS", "SEQUENCE SET", "BLOB METADATA"})


def read_list(text: str) -> tuple[int, ...]:
    """Return the dump ids of a list as written by `pg_restore -l` and read by `-L`, in its order.

    >>> read_list(";\\n; Selected TOC Entries:\\n11; 0 16385 TABLE DATA public t app\\n;12; 0 1 INDEX - i app")
    (11,)
    """
    return tuple(int(found) for found in _LINE.findall(text))


def select_entries(
    plan: DumpPlan,
    *,
    ids: Collection[int] | None = None,
    data_only: bool = False,
    schema_only: bool = False,
) -> DumpPlan:
    """Return the plan with only the selected entries."""
    wanted_ids = frozenset(ids) if ids is not None else None

    def is_selected(entry: DumpEntry) -> bool:
        if wanted_ids is not None and entry.dump_id not in wanted_ids:
            return False
        return not (data_only or schema_only) or (entry.desc in _IN_DATA) == data_only

    return replace(plan, entries=tuple(entry for entry in plan.entries if is_selected(entry)))
