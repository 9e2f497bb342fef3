"""Find the objects a job works on, from its sessions' statements, progress views and the files its processes read.

Pure. Objects are looked up in the plan; without a plan they are identified by name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.index_build import BuildStage, stage_of
from dba_console.jobs.archives.statement_parser import DumpStatement, read_statement, reads_large_objects
from dba_console.jobs.archives.toc import DumpEntry, file_stem
from dba_console.jobs.following.pipeline import InputFile
from dba_console.watch.progress.readings import Operation
from dba_console.watch.samples.postgres import Activity
from dba_console.watch.session_states import ACTIVE, wait_text

TRACKED_DESCS = frozenset({
    "TABLE DATA", "BLOBS", "INDEX", "CONSTRAINT", "FK CONSTRAINT", "CHECK CONSTRAINT", "MATERIALIZED VIEW DATA",
})  # fmt: skip
"""Kinds of objects that may run long enough to be observed."""


class ObjectActivity(NamedTuple):
    """An object that is being dumped or restored."""

    named: DumpStatement
    entry: DumpEntry | None
    """Its entry in the plan; None without a plan, or if not planned."""
    done: float | None
    total: float | None
    unit: str | None
    """bytes, rows."""
    measured: bool
    """done and total are from the kernel, not an estimate."""
    pid: int
    started_us: int | None
    """Server's clock."""
    note: str | None
    """What it waits for, or the phase of an index build."""
    stage: BuildStage | None = None
    """Of an index build."""


class PlanIndex:
    """A plan with indexes by name and file."""

    def __init__(self, plan: DumpPlan) -> None:
        self.plan = plan
        self._names: dict[tuple[str, str | None, str], DumpEntry] = {}
        self._files: dict[str, DumpEntry] = {}
        self.order: dict[int, int] = {}
        """Dump id -> position in the archive's order."""
        for position, entry in enumerate(plan.entries):
            self.order[entry.dump_id] = position
            if entry.desc in TRACKED_DESCS:
                self._names.setdefault((entry.desc, entry.schema, entry.tag), entry)
            if entry.file is not None:
                self._files[entry.file] = entry

    def find_by_name(self, desc: str, schema: str | None, tag: str) -> DumpEntry | None:
        """Return the entry with this name, None if not found."""
        return self._names.get((desc, schema, tag))

    def find_by_file(self, path: str) -> DumpEntry | None:
        """Return the entry whose data is in this file of a directory archive."""
        return self._files.get(file_stem(posixpath.basename(path)))


def find_active_objects(
    rows: Iterable[Activity],
    operations: Mapping[int, Operation],
    worker: Mapping[int, int],
    readings: Iterable[InputFile],
    index: PlanIndex | None,
) -> list[ObjectActivity]:
    """Return all objects that the sessions `rows` work on. `operations`: session to its row in a progress view;
    `worker`: session to its client process; `readings`: the files these processes read."""
    of_process: dict[int, InputFile] = {}
    for one in readings:  # beside a large object, its list is open too
        if one.pid not in of_process or (index is not None and index.find_by_file(one.path) is not None):
            of_process[one.pid] = one
    found = []
    for row in rows:
        named = read_statement(row.query)
        if row.state not in ACTIVE and not reads_large_objects(row.query):
            continue
        reading = of_process.get(worker.get(row.pid, 0))
        entry = None if index is None else _entry(named, reading, index)
        if named is None and entry is not None:
            named = DumpStatement(desc=entry.desc, phase=entry.phase, schema=entry.schema, tag=entry.tag)
        if named is not None:
            found.append(_object_activity(named, entry, row, reading, operations.get(row.pid)))
    return found


def _entry(named: DumpStatement | None, reading: InputFile | None, index: PlanIndex) -> DumpEntry | None:
    known = None if named is None else index.find_by_name(named.desc, named.schema, named.tag)
    if known is None and reading is not None and (named is None or named.desc in ("TABLE DATA", "BLOBS")):
        return index.find_by_file(reading.path)
    return known


def _object_activity(
    named: DumpStatement, entry: DumpEntry | None, row: Activity, reading: InputFile | None, operation: Operation | None
) -> ObjectActivity:
    done, total, unit, measured = _amount(named, entry, reading, operation)
    note, stage = wait_text(row), None
    if operation is not None and operation.kind == "create_index" and operation.phase:
        stage = stage_of(operation.phase, operation.done, operation.total)
        share = f" {100 * operation.done / operation.total:.0f}%" if operation.done and operation.total else ""
        note = f"{operation.phase}{share}" + (f", waits for {note}" if note else "")
    elif note:
        note = f"waits for {note}"
    return ObjectActivity(named, entry, done, total, unit, measured, row.pid, row.query_start, note, stage)


def _amount(
    named: DumpStatement, entry: DumpEntry | None, reading: InputFile | None, operation: Operation | None
) -> tuple[float | None, float | None, str | None, bool]:
    """Return done, total, unit and whether measured: by its data file if one is read, else by estimated rows."""
    if named.desc not in ("TABLE DATA", "BLOBS", "MATERIALIZED VIEW DATA"):
        return None, None, None, False
    if entry is not None and reading is not None:
        if entry.file is not None and posixpath.basename(reading.path).startswith(entry.file):
            return float(reading.pos), float(reading.size), "bytes", True
        if entry.offset is not None and entry.weight and reading.pos >= entry.offset:
            return min(float(reading.pos - entry.offset), entry.weight), entry.weight, "bytes", True
    if operation is None or operation.kind != "copy":
        return None, None, None, False
    rows = operation.detail.get("tuples_processed")
    if isinstance(rows, int) and entry is not None and entry.rows:
        return float(rows), max(entry.rows, float(rows)), "rows", False
    return (None, None, None, False) if operation.done is None else (float(operation.done), None, "bytes", False)
