"""Rows of the progress panel: long operations, and for dumps and restores their phases and objects.

Names and units as in `model`.
"""

from __future__ import annotations

from msgspec import Struct


class PhaseRow(Struct, kw_only=True):
    """Progress of one phase of a dump or restore. Phases overlap with -j."""

    name: str
    """schema, data, indexes, constraints, rest."""
    state: str = "unknown"
    """waiting, running, done, unknown."""
    items: int | None = None
    items_done: int = 0
    items_running: int = 0
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    pct: float | None = None
    grade: str = "unknown"
    started: str | None = None
    wall_s: float | None = None
    busy_s: float | None = None
    """Sum over all its objects: with -j more than wall_s."""
    rate_per_s: float | None = None
    """Units per second of wall_s."""
    eta_s: float | None = None
    eta_grade: str = "unknown"


class ObjectRow(Struct, kw_only=True):
    """One object of a dump or restore, ordered: running, failed, largest waiting, last done."""

    name: str
    what: str
    """TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: str
    state: str
    """running, failed, waiting, done."""
    weight: float | None = None
    """Bytes; an index or key has the weight of its table's data."""
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    pct: float | None = None
    grade: str = "unknown"
    rate_per_s: float | None = None
    started: str | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    pid: int | None = None
    """Backend that processes it."""
    note: str | None = None
    """The error, what it waits for, the sub-phase."""


class JobCounts(Struct, kw_only=True):
    """Objects of a dump or restore by state."""

    running: int = 0
    done: int = 0
    waiting: int = 0
    failed: int = 0


class ProgressRow(Struct, kw_only=True):
    kind: str
    pid: int | None
    database: str | None = None
    object: str | None = None
    phase: str | None = None
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    pct: float | None = None
    """Never above 100, never decreasing. The share of `scope`."""
    grade: str = "unknown"
    """measured, estimated or unknown: how pct is known."""
    started: str | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    """Until the end of `scope`; None below 5 %, and if unknown."""
    usual_s: float | None = None
    rate_per_s: float | None = None
    part_of: int | None = None
    """The `pid` of the row of the dump or restore this session belongs to."""
    blocks: int = 0
    """Sessions blocked by its locks."""
    user: str | None = None
    wait: str | None = None
    """Wait event, if no other progress is known."""
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""
    # The fields below are only for dumps and restores, and mostly only if their program runs on this host.
    scope: str = "phase"
    """phase, file or whole: what pct and eta_s refer to; `file`: the file it reads, after which indexes and keys may
    follow. With `whole`, done and total refer to the whole too."""
    eta_grade: str = "unknown"
    """measured, estimated, history (from earlier runs), unknown."""
    late_s: float | None = None
    """Time beyond its typical duration; None if unknown or not late."""
    usual_runs: int | None = None
    """Number of runs that usual_s is the median of."""
    source: str | None = None
    """For a restore: the database its archive was made from; usual_s is then that of restores of this database."""
    process: int | None = None
    """The program's process on this host; pid is a backend of the server."""
    backends: list[int] = []
    """Its sessions; the newest ones may be missing."""
    client: str | None = None
    """Address of the host it runs on, if not this one."""
    version: str | None = None
    """Version of the program."""
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    jobs: int | None = None
    """-j."""
    command: str | None = None
    """The command line; redacted."""
    run: str | None = None
    """Id of the runbook run that started it."""
    reads: str | None = None
    read_bytes: int | None = None
    read_size_bytes: int | None = None
    writes: str | None = None
    written_bytes: int | None = None
    written_per_s: float | None = None
    mount: str | None = None
    """Mount it writes to; for a restore the one of the data directory."""
    free_bytes: int | None = None
    need_bytes: float | None = None
    """Still to be written there, estimated."""
    fits: bool | None = None
    """Whether the free space suffices; None if unknown."""
    counts: JobCounts | None = None
    """None if its objects are unknown."""
    phases: list[PhaseRow] = []
    objects: list[ObjectRow] = []
    """The relevant ones; all are in counts."""
    critical: list[str] = []
    """The critical path: largest table, its indexes, its keys."""
    errors: int | None = None
    """Errors so far; None if its messages cannot be read."""
    last_error: str | None = None
    xid_age: int | None = None
    """Age of the xmin horizon its sessions hold back, in transactions."""
    sources: list[str] = []
    """Data sources used."""
    unknown: list[str] = []
    """What is unknown and why, in sentences."""
