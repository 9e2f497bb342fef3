"""Estimate the size of a dump and whether it fits: from table sizes and the compression ratio of earlier dumps.

Indexes are not dumped, so pg_database_size is far too large. The ratio is known only from an earlier dump; without one,
the size of the tables is the upper limit for a compressed dump.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Target, address_of
from dba_console.core.units import human_bytes
from dba_console.jobs.history.history_reader import read_job_history
from dba_console.jobs.tools.job_count_results import load_result
from dba_console.jobs.tools.scratch_directory import MIN_FREE_SHARE, free_space, mount_of
from dba_console.jobs.tools.server_connection import read_tables

MARGIN = 1.2
"""Factor on an estimate from earlier dumps, because the data change."""
_LARGE_OBJECTS = (
    "select coalesce(sum(pg_relation_size(oid)), 0)::bigint as n from pg_class where relname = 'pg_largeobject'"
)


class DumpSizeEstimate(Struct, frozen=True, kw_only=True):
    """The expected size of a dump, in bytes. None: not known."""

    table_bytes: int
    """All tables with rows, including TOAST and large objects, without indexes."""
    tables: int
    dump_bytes: int | None
    """Estimated from earlier dumps."""
    at_most_bytes: int
    """Free space that is safe to require."""
    ratio: float | None
    ratio_from: str | None
    """Source of the ratio, as text."""
    place: str | None
    mount: str | None
    free_bytes: int | None
    fits: bool | None
    note: str | None = None


def estimate_dump_size(server: QueryConnection, target: Target, directory: Path | None) -> DumpSizeEstimate:
    """Estimate a dump of the server's database, and whether it fits into `directory`. Raises ConsoleError."""
    tables, note = read_tables(server)
    total = sum(table.size for table in tables) + _large_objects(server)
    ratio, source = known_ratio(target, server.identity.database)
    dump = None if ratio is None else round(total * ratio)
    most = total if dump is None else round(dump * MARGIN)
    mount, free, size = _free_space(directory)
    fits = None if free is None or size is None else free - most >= size * MIN_FREE_SHARE
    if directory is not None and not directory.exists():
        missing = f"{directory} does not exist: free space is that of its nearest existing parent directory"
        note = missing if note is None else f"{note}; {missing}"
    return DumpSizeEstimate(
        table_bytes=total, tables=len(tables), dump_bytes=dump, at_most_bytes=most, ratio=ratio, ratio_from=source,
        place=None if directory is None else str(directory), mount=mount, free_bytes=free, fits=fits, note=note,
    )  # fmt: skip


def known_ratio(target: Target, database: str) -> tuple[float | None, str | None]:
    """Return dump bytes per table byte, and its source: the last observed dumps, else the sweep."""
    past = [
        run.bytes / run.size_bytes
        for job in read_job_history(target.key, address_of(target.conninfo)).jobs
        if job.kind == "pg_dump" and job.database == database
        for run in job.runs
        if run.counts and run.bytes and run.size_bytes
    ]
    if past:
        last = past[-5:]
        return median(last), f"the last {len(last)} dumps of {database}" if len(last) > 1 else f"a dump of {database}"
    kept = load_result(target.key)
    if kept is not None and kept.ratio is not None and kept.database == database:
        return kept.ratio, "the trial dumps of `dba-console dumps sweep`"
    return None, None


def _large_objects(server: QueryConnection) -> int:
    try:
        return int(server.rows(_LARGE_OBJECTS)[0]["n"])
    except ConsoleError:
        return 0


def _free_space(directory: Path | None) -> tuple[str | None, int | None, int | None]:
    if directory is None:
        return None, None, None
    existing = next((one for one in (directory, *directory.parents) if one.exists()), Path("/"))
    mount = mount_of(existing)
    try:
        space = free_space(existing)
    except OSError:
        return (mount.path if mount else None), None, None
    return (mount.path if mount else None), space.free, space.size


def estimate_lines(found: DumpSizeEstimate) -> Sequence[str]:
    """Return the estimate as text lines."""
    lines = [f"tables: {found.tables}, {human_bytes(found.table_bytes)} without indexes"]
    if found.dump_bytes is None:
        lines.append(f"dump: unknown before the first one; compressed at most about {human_bytes(found.table_bytes)}")
    else:
        lines.append(
            f"dump: about {human_bytes(found.dump_bytes)} (estimated, ratio {found.ratio:.2f}: {found.ratio_from})"
        )
    if found.place is not None:
        free = human_bytes(found.free_bytes)
        lines.append(f"free at {found.place}: {free}" + (f" (mount {found.mount})" if found.mount else ""))
        verdict = {
            True: f"it fits: needs up to {human_bytes(found.at_most_bytes)}",
            False: f"it does not fit: needs up to {human_bytes(found.at_most_bytes)}, and 5 % must stay free",
            None: "unknown whether it fits",
        }[found.fits]
        lines.append(verdict)
    return [*lines, *([found.note] if found.note else [])]
