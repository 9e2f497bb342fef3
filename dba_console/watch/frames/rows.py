"""Rows of the panels' tables, with the field names of the contract (`show --json`); units as in `model`."""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.samples.jobs import JobFacts, ObjectFacts, PhaseFacts


class ConnectionGroup(Struct, kw_only=True):
    """Connections with one attribute in common."""

    name: str
    count: int
    active: int | None = 0
    """None if the state of a session is hidden or not tracked; idle_in_transaction too."""
    idle_in_transaction: int | None = 0
    limit: int | None = None
    """CONNECTION LIMIT of the role or database; None if it has none."""
    oldest_idle_s: float | None = None


class EventRow(Struct, kw_only=True):
    at: str
    kind: str
    tag: str
    text: str
    seq: int = 0
    severity: str = "info"
    finding: str | None = None
    """The id of the finding it belongs to."""


# Long operations, and of dumps and restores their phases and objects.


class PhaseRow(PhaseFacts, kw_only=True):
    started: str | None = None
    rate_per_s: float | None = None
    """Units per second of wall_s."""


class ObjectRow(ObjectFacts, kw_only=True):
    started: str | None = None


class JobCounts(Struct, kw_only=True):
    """Objects of a dump or restore by state."""

    running: int = 0
    done: int = 0
    waiting: int = 0
    failed: int = 0


class ProgressRow(JobFacts, kw_only=True):
    """A long operation; pct and eta_s refer to `scope`."""

    pid: int | None
    object: str | None = None
    started: str | None = None
    part_of: int | None = None
    """The `pid` of the row of the dump or restore this session belongs to."""
    blocks: int = 0
    """Sessions blocked by its locks."""
    wait: str | None = None
    """Wait event, if no other progress is known."""
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""
    # The fields below are only for dumps and restores, and mostly only if their program runs on this host.
    scope: str = "phase"
    """phase, file or whole: what pct and eta_s refer to; `file`: the file it reads, after which indexes and keys may
    follow. With `whole`, done and total refer to the whole too."""
    late_s: float | None = None
    """Time beyond its typical duration; None if unknown or not late."""
    usual_runs: int | None = None
    """Number of runs that usual_s is the median of."""
    process: int | None = None
    """The program's process on this host; pid is a backend of the server."""
    backends: list[int] = []
    """Its sessions; the newest ones may be missing."""
    counts: JobCounts | None = None
    """None if its objects are unknown."""
    phases: list[PhaseRow] = []
    objects: list[ObjectRow] = []
    """The relevant ones, ordered: running, failed, largest waiting, last done; all are in counts."""
    critical: list[str] = []
    """The critical path: largest table, its indexes, its keys."""
    xid_age: int | None = None
    """Age of the xmin horizon its sessions hold back, in transactions."""
    sources: list[str] = []
    """Data sources used."""
    unknown: list[str] = []
    """What is unknown and why, in sentences."""
