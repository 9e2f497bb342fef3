"""From a table of contents, or a list of tables, to a plan: which phase each object is of, what it weighs and needs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.dump_plan import DumpEntry, DumpPlan, Phase
from dba_console.archives.toc import Toc, TocEntry

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
