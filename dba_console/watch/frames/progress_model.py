"""What a row of the progress panel holds: any long work, and of dumps and restores their phases and objects.

Names and units are those of `model`.
"""

from __future__ import annotations

from msgspec import Struct


class PhaseRow(Struct, kw_only=True):
    """How far one phase of a dump or restore is. Phases overlap with -j: none waits for the whole of the one before."""

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
    """Of all its objects together: with -j more than wall_s."""
    rate_per_s: float | None = None
    """Units per second of wall_s."""
    eta_s: float | None = None
    eta_grade: str = "unknown"


class ObjectRow(Struct, kw_only=True):
    """One object of a dump or restore: those running first, then failed, the largest waiting, the last done."""

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
    """Backend that works at it."""
    note: str | None = None
    """The error, what it waits for, the sub-phase."""


class JobCounts(Struct, kw_only=True):
    """Objects of a dump or restore by their state."""

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
    """Never above 100, never back. What it is the share of: `scope`."""
    grade: str = "unknown"
    """measured, estimated or unknown: how pct is known."""
    started: str | None = None
    elapsed_s: float | None = None
    eta_s: float | None = None
    """Until what `scope` says ends; None below 5 %, and where nothing tells."""
    usual_s: float | None = None
    rate_per_s: float | None = None
    part_of: int | None = None
    """The `pid` of the row of the dump or restore whose session does this."""
    blocks: int = 0
    """Sessions that wait behind its locks."""
    user: str | None = None
    wait: str | None = None
    """Wait event where nothing else tells how far it is."""
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query where `query` is its beginning."""
    # What follows is known of dumps and restores alone, as far as their programs run on this host.
    scope: str = "phase"
    """phase, file, whole: of what pct is the share and eta_s the end; `file`: of the file it reads, after which indexes
    and keys may follow. With `whole`, done and total are of the whole too."""
    eta_grade: str = "unknown"
    """measured, estimated, history (it rests on runs before), unknown."""
    late_s: float | None = None
    """How far it is beyond its usual duration; None where that is not known or it is not."""
    usual_runs: int | None = None
    """Runs that usual_s is the median of."""
    source: str | None = None
    """Of a restore: the database its archive was made of; usual_s is then of restores of that one."""
    process: int | None = None
    """The program's process on this host; pid is a backend of the server."""
    backends: list[int] = []
    """Its sessions; those that began last may be missing."""
    client: str | None = None
    """Address of the host it runs on, where that is not this one."""
    version: str | None = None
    """Of the program."""
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    jobs: int | None = None
    """-j."""
    command: str | None = None
    """As it was started; redacted."""
    run: str | None = None
    """Id of the run of a runbook that started it."""
    reads: str | None = None
    read_bytes: int | None = None
    read_size_bytes: int | None = None
    writes: str | None = None
    written_bytes: int | None = None
    written_per_s: float | None = None
    mount: str | None = None
    """What it writes to; for a restore where the data directory lies."""
    free_bytes: int | None = None
    need_bytes: float | None = None
    """Still to be written there, estimated."""
    fits: bool | None = None
    """Whether that suffices; None where it is not known."""
    counts: JobCounts | None = None
    """None where its objects are not known."""
    phases: list[PhaseRow] = []
    objects: list[ObjectRow] = []
    """Those worth a line; the rest is in counts."""
    critical: list[str] = []
    """The chain that decides when it ends: largest table, its indexes, its keys."""
    errors: int | None = None
    """So far; None where its messages cannot be read."""
    last_error: str | None = None
    xid_age: int | None = None
    """Of the horizon its sessions hold back, in transactions."""
    sources: list[str] = []
    """What was read for it."""
    unknown: list[str] = []
    """What is not known and why, in sentences."""
