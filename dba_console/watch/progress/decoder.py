"""Decodes pg.progress: the pg_stat_progress_* views of this server version. Loaded by the probe and actions only.

Each row arrives as JSON with whatever columns the view has. Which columns measure the progress depends on the phase
(PostgreSQL documentation, "Progress Reporting"); a total of 0 means that the server does not know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dba_console.watch.probes.postgres.binary_results import Row, decode
from dba_console.watch.probes.postgres.oid_names import Extent, OidNames
from dba_console.watch.progress.readings import Operation, Operations

_PREFIX = "pg_stat_progress_"
_HEAD = ("pid", "datid", "datname", "relid", "index_relid", "phase")
Measure = tuple[str, str, str]
"""Columns for done and total, and their unit."""

ROWS, INDEXES = "reltuples", "relindexes"
"""Added to the columns of a view: estimated rows of the table (COPY TO), and its number of indexes."""
_SIZED = frozenset({"copy", "cluster", "repack"})
_VACUUM: dict[str, Measure] = {
    "scanning heap": ("heap_blks_scanned", "heap_blks_total", "blocks"),
    "vacuuming heap": ("heap_blks_vacuumed", "heap_blks_total", "blocks"),
    "vacuuming indexes": ("indexes_processed", "indexes_total", "indexes"),
    "cleaning up indexes": ("indexes_processed", "indexes_total", "indexes"),
}
_ANALYZE: dict[str, Measure] = {
    "acquiring sample rows": ("sample_blks_scanned", "sample_blks_total", "blocks"),
    "acquiring inherited sample rows": ("child_tables_done", "child_tables_total", "child tables"),
    "computing extended statistics": ("ext_stats_computed", "ext_stats_total", "statistics"),
}
_REWRITE: dict[str, Measure] = {
    "seq scanning heap": ("heap_blks_scanned", "heap_blks_total", "blocks"),
    "index scanning heap": ("heap_tuples_scanned", "", "tuples"),
    "writing new heap": ("heap_tuples_written", "heap_tuples_scanned", "tuples"),
    "rebuilding index": ("index_rebuild_count", INDEXES, "indexes"),
}
_BY_PHASE = {"vacuum": _VACUUM, "analyze": _ANALYZE, "cluster": _REWRITE, "repack": _REWRITE}
_ALWAYS: dict[str, Measure] = {
    "copy": ("bytes_processed", "bytes_total", "bytes"),
    "basebackup": ("backup_streamed", "backup_total", "bytes"),
    "data_checksums": ("blocks_done", "blocks_total", "blocks"),
}


def operations_of(rows: Sequence[Row], names: OidNames) -> Operations:
    """Return the running operations. Rows are the view's name and the row as JSON."""
    return Operations([_operation(view.decode(), document, names) for view, document in rows])


def _operation(view: str, document: bytes, names: OidNames) -> Operation:
    columns = msgspec.json.decode(decode(document, names.codec).encode("utf-8", "replace"))
    kind = view.removeprefix(_PREFIX)
    done, total, unit = measure(kind, columns)
    database, table = _oid(columns, "datid"), _oid(columns, "relid")
    name = names.relation(database, _oid(columns, "index_relid") or table)
    if kind in _SIZED and names.relation(database, table) is not None:
        columns |= _totals(kind, columns, names.extent(database, table))
        done, total, unit = measure(kind, columns)
    return Operation(
        kind=kind,
        pid=columns["pid"],
        database=names.database(database),
        object=name,
        phase=columns.get("phase"),
        done=done,
        total=total,
        unit=unit,
        detail={key: _plain(value) for key, value in columns.items() if key not in _HEAD and value is not None},
    )


def _totals(kind: str, columns: dict[str, Any], extent: Extent) -> dict[str, Any]:
    """Return totals that the view does not have, from the catalog."""
    if kind != "copy":
        return {INDEXES: extent.indexes}
    return {ROWS: extent.tuples} if columns.get("command") == "COPY TO" else {}


def _oid(columns: dict[str, Any], name: str) -> int | None:
    """Return an OID, which is text in JSON; None for 0 and NULL."""
    return int(columns.get(name) or 0) or None


def measure(kind: str, columns: dict[str, Any]) -> tuple[int | None, int | None, str]:
    """Return done, total and unit of this phase.

    >>> measure("copy", {"bytes_processed": 10, "bytes_total": 0})
    (10, None, 'bytes')
    >>> measure("vacuum", {"phase": "truncating heap", "heap_blks_scanned": 5, "heap_blks_total": 5})
    (None, None, 'blocks')
    """
    phase = columns.get("phase") or ""
    if kind == "create_index":
        chosen = _create_index(phase, columns)
    else:
        chosen = _ALWAYS.get(kind) or _BY_PHASE.get(kind, {}).get(phase)
    if chosen is None:
        return None, None, "blocks"
    done, total, unit = chosen
    return columns.get(done), columns.get(total) or None, unit


def _create_index(phase: str, columns: dict[str, Any]) -> Measure | None:
    """Totals of CREATE INDEX are set again in each phase, and those that do not belong to it are 0."""
    if phase.startswith("waiting for"):
        return ("lockers_done", "lockers_total", "lockers")
    for unit in ("tuples", "blocks"):
        if columns.get(f"{unit}_total"):
            return (f"{unit}_done", f"{unit}_total", unit)
    return None


def _plain(value: Any) -> int | str | None:
    """Return a column of another type (bool, float, list) as text, so that the record stays simple."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else str(value)
