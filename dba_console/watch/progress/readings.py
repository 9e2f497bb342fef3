"""What is read about long operations: the progress views of the server, and the dumps and restores the agent observes.

The structs of the jobs are in `samples`: what observes them uses them too. Rows of the views become operations in
`decoder.py`, because which columns measure the progress depends on the phase.
"""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.part import DatabaseName, PartKind, Query, RelationName, ServerPart
from dba_console.watch.samples import jobs

ESTIMATED_MOST = 99.0
"""An estimated share stays below 100 until the operation has left the view."""


class Operation(Struct, array_like=True, frozen=True):
    """A row of a pg_stat_progress_* view."""

    kind: str
    """copy, create_index, vacuum, analyze, cluster, basebackup, data_checksums."""
    pid: int
    database: DatabaseName | None
    object: RelationName | None
    phase: str | None
    done: int | None
    total: int | None
    """None (or the view's 0) if the server does not know the total."""
    unit: str
    """blocks, tuples, bytes, child tables, lockers."""
    detail: dict[str, int | str | None]
    """The remaining columns of the view."""

    @property
    def grade(self) -> str:
        """measured or estimated: how `pct` is known."""
        # backup_total is an estimate made at the start, and raised when exceeded (monitoring.sgml); the rows of a COPY
        # TO are those of the last VACUUM or ANALYZE.
        is_estimate = self.kind == "basebackup" or (self.kind == "copy" and not self.total)
        return "estimated" if is_estimate else "measured"

    @property
    def pct(self) -> float | None:
        """done / total in percent, None if the server does not know the total."""
        if self.kind == "copy" and not self.total:
            done, rows = self.detail.get("tuples_processed"), self.detail.get("reltuples")
            if isinstance(done, int) and isinstance(rows, int) and rows > 0:
                return min(ESTIMATED_MOST, 100.0 * done / rows)
        if self.done is None or not self.total or self.total <= 0 or self.done < 0:
            return None
        return min(ESTIMATED_MOST if self.grade == "estimated" else 100.0, 100.0 * self.done / self.total)


class Operations(Struct, array_like=True, frozen=True):
    rows: list[Operation]


PARTS = (
    ServerPart("pg.progress", Operations, every_s=1, meaning="pg_stat_progress_*", queries=(Query("progress"),)),
    PartKind("jobs", jobs.Jobs, 30, "long jobs: running ones, and statistics of earlier runs"),
    PartKind("jobs.now", jobs.JobsNow, 2, "dumps, restores and other long programs now running, in detail"),
)
