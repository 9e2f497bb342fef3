"""Readings of long jobs: which dumps, restores and similar programs run now, and statistics of earlier runs.

The agent observes jobs start and end among the sessions and keeps their durations; they are part of the sample, so that
a replay shows what was typical then. Structs are stored by position (`array_like`): a field may be added at the end
with a default, never moved or removed.
"""

from __future__ import annotations

from msgspec import Struct

JobKey = tuple[str, str | None, str | None]
"""Program, database, user: runs with the same key are compared."""


class JobStatistics(Struct, array_like=True, frozen=True, gc=False):
    """Statistics of the runs of one job: a program, as one user, in one database."""

    kind: str
    """pg_dump, pg_restore, ...: the program."""
    database: str | None
    """None for a base backup, which covers all."""
    user: str | None
    runs: int
    """Counted runs: neither cancelled at once nor only partly observed."""
    usual_s: float | None
    """Median duration, seconds; None with fewer than three counted runs."""
    interval_s: float | None
    """Median time from one start to the next, seconds; only from fully observed intervals."""
    intervals: int
    """Number of such intervals."""
    longest_interval_s: float | None
    """The longest of them, from eight on the second longest, so that one holiday does not count."""
    last_ended_us: int | None
    """Host wall time at which the last counted run ended."""
    last_s: float | None
    """Its duration, seconds."""
    watched_since_us: int
    """Host wall time since which no run can have been missed."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class RunningJob(Struct, array_like=True, frozen=True, gc=False):
    """A job that runs now."""

    kind: str
    database: str | None
    user: str | None
    pid: int
    """Backend of the session connected first, if it still exists."""
    started: int | None
    """Server's clock; None if this role cannot see it."""
    elapsed_s: float | None
    """As of the reading, by the monotonic clock; None if the start is not known."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class Jobs(Struct, array_like=True, frozen=True):
    """Long jobs of one target: running ones, and statistics of earlier runs."""

    now_us: int
    """Host wall time of the reading."""
    past: list[JobStatistics]
    running: list[RunningJob]

    def statistics_of(self, key: JobKey) -> JobStatistics | None:
        """Return the statistics of one job, None if there are none."""
        return next((one for one in self.past if one.key == key), None)


class PhaseNow(Struct, array_like=True, frozen=True, gc=False):
    """Progress of one phase of a job."""

    name: str
    """schema, data, indexes, constraints, rest; or as in a progress view."""
    state: str
    """waiting, running, done, unknown."""
    items: int | None
    """Number of objects; None if not known."""
    items_done: int
    items_running: int
    done: float | None
    total: float | None
    unit: str | None
    """Of done and total: bytes, rows."""
    pct: float | None
    grade: str
    """measured, estimated, unknown: how pct was obtained."""
    started_us: int | None
    """Host wall time."""
    wall_s: float | None
    """From the start of its first object to now, or to the end of its last."""
    busy_s: float | None
    """Sum over all its objects: with -j more than wall_s."""
    eta_s: float | None
    eta_grade: str


class ObjectNow(Struct, array_like=True, frozen=True, gc=False):
    """One listed object of a job: running, failed, the largest waiting, the last done."""

    name: str
    """With its schema, as the server quotes it; sanitized."""
    what: str
    """TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: str
    state: str
    """running, failed, waiting, done."""
    weight: float | None
    """Bytes; see Entry.weight of the archive entries."""
    done: float | None
    total: float | None
    unit: str | None
    pct: float | None
    grade: str
    rate_per_s: float | None
    started_us: int | None
    elapsed_s: float | None
    eta_s: float | None
    pid: int | None
    """Backend that processes it."""
    note: str | None
    """The error, the wait, the sub-phase."""


class JobNow(Struct, array_like=True, frozen=True, gc=False):
    """One running dump, restore or similar program in detail. None: not known."""

    kind: str
    """The program: pg_dump, pg_restore, psql, pg_basebackup, …"""
    pid: int | None
    """Its process on this host."""
    backends: tuple[int, ...]
    """Its sessions; the first is the one connected first."""
    database: str | None
    user: str | None
    version: str | None
    """Of the program."""
    format: str | None
    """directory, custom, tar, plain."""
    compression: str | None
    jobs: int | None
    """-j."""
    command: str | None
    """As it was started; redacted, sanitized."""
    run: str | None
    """Id of the runbook run that started it."""
    started_us: int | None
    """Host wall time."""
    elapsed_s: float | None
    reads: str | None
    """File or directory it reads."""
    read_bytes: int | None
    read_size_bytes: int | None
    writes: str | None
    """File or directory it writes."""
    written_bytes: int | None
    written_per_s: float | None
    mount: str | None
    """Mount it writes to; for a restore that of the data directory."""
    free_bytes: int | None
    need_bytes: float | None
    """Bytes still to be written there, estimated."""
    fits: bool | None
    phase: str | None
    """The current one."""
    phases: tuple[PhaseNow, ...]
    objects: tuple[ObjectNow, ...]
    """At most OBJECTS_LISTED; running first."""
    counts: tuple[int, int, int, int]
    """Objects running, done, waiting, failed."""
    pct: float | None
    """Of the whole; never decreases, never 100 while it runs."""
    grade: str
    eta_s: float | None
    eta_grade: str
    """measured, estimated, unknown; `history` if based on earlier runs."""
    errors: int | None
    """So far, if its messages can be read."""
    last_error: str | None
    critical: tuple[str, ...]
    """The critical path: largest table, its indexes, its keys."""
    sources: tuple[str, ...]
    """Sources of these values: `toc.dat`, `pg_stat_progress_copy`, `fdinfo of pid 812`, `stderr in /var/log/r.log`."""
    unknown: tuple[str, ...]
    """What is not known and why, as sentences."""
    client: str | None = None
    """Address of the host its program runs on, if it is not this one."""
    done: float | None = None
    """Data of the whole; None if the total is not known."""
    total: float | None = None
    unit: str | None = None
    """Of done and total: bytes, rows."""
    rate_per_s: float | None = None
    """Rate of done over the last minutes."""
    source: str | None = None
    """Restore: the database the archive was made of; the next two then cover all restores of it."""
    usual_s: float | None = None
    usual_runs: int = 0


OBJECTS_LISTED = 120
"""Objects of one job in a sample: enough for a screen and its page; the rest is only counted."""


class JobsNow(Struct, array_like=True, frozen=True):
    """All running jobs (part `jobs.now`)."""

    now_us: int
    """Host wall time of the reading."""
    jobs: tuple[JobNow, ...]
