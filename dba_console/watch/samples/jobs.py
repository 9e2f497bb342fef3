"""Long jobs: which dumps, restores and the like run now, and what is known of the ones before.

The agent sees jobs begin and end among the sessions and keeps their durations; what it knows goes into the sample, so
that replay shows what was usual then. Structs are stored by position (`array_like`): a field may be added at the end
with a default, never moved or removed.
"""

from __future__ import annotations

from msgspec import Struct

JobKey = tuple[str, str | None, str | None]
"""Program, database, user: whose runs are compared with each other."""


class JobStatistics(Struct, array_like=True, frozen=True, gc=False):
    """What is known of the runs of one job: a program, as one user, in one database."""

    kind: str
    """pg_dump, pg_restore, ...: the program."""
    database: str | None
    """None for a base backup, which is of all of them."""
    user: str | None
    runs: int
    """Runs that count: neither cancelled at once nor seen in part only."""
    usual_s: float | None
    """Median duration, seconds; None with fewer than three runs that count."""
    interval_s: float | None
    """Median time from one start to the next, seconds; only where everything between the two was watched."""
    intervals: int
    """How many such distances are known."""
    longest_interval_s: float | None
    """The longest of them, of eight and more the second longest: one holiday makes no rule."""
    last_ended_us: int | None
    """Host wall time at which the last run that counts ended."""
    last_s: float | None
    """Its duration, seconds."""
    watched_since_us: int
    """Host wall time since which no run can have gone unseen."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class RunningJob(Struct, array_like=True, frozen=True, gc=False):
    """A job that runs now."""

    kind: str
    database: str | None
    user: str | None
    pid: int
    """Backend of the session connected first, as far as it is still there."""
    started: int | None
    """Server's clock; None where this role may not see it."""
    elapsed_s: float | None
    """As of the reading, by the clock no one sets; None where the start is not known."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class Jobs(Struct, array_like=True, frozen=True):
    """Everything known of long jobs on one target."""

    now_us: int
    """Host wall time of the reading."""
    past: list[JobStatistics]
    running: list[RunningJob]

    def statistics_of(self, key: JobKey) -> JobStatistics | None:
        """The past of one job, None where there is none."""
        return next((one for one in self.past if one.key == key), None)


class PhaseNow(Struct, array_like=True, frozen=True, gc=False):
    """How far one phase of a job is."""

    name: str
    """schema, data, indexes, constraints, rest; or as a progress view words it."""
    state: str
    """waiting, running, done, unknown."""
    items: int | None
    """Objects there are; None where nobody knows."""
    items_done: int
    items_running: int
    done: float | None
    total: float | None
    unit: str | None
    """Of done and total: bytes, rows."""
    pct: float | None
    grade: str
    """measured, estimated, unknown: how pct is known."""
    started_us: int | None
    """Host wall time."""
    wall_s: float | None
    """From its first object's start to now, or to its last one's end."""
    busy_s: float | None
    """Of all its objects together: with -j more than wall_s."""
    eta_s: float | None
    eta_grade: str


class ObjectNow(Struct, array_like=True, frozen=True, gc=False):
    """One object of a job that is told: those running, those that failed, the largest waiting, the last done."""

    name: str
    """With its schema, as the server quotes it; harmless."""
    what: str
    """TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: str
    state: str
    """running, failed, waiting, done."""
    weight: float | None
    """Bytes; see archives.entries.Entry.weight."""
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
    """Backend that works at it."""
    note: str | None
    """The error, what it waits for, the sub-phase."""


class JobNow(Struct, array_like=True, frozen=True, gc=False):
    """One dump, restore or the like under way, with all that was found out about it. None: not known."""

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
    """As it was started; redacted, harmless."""
    run: str | None
    """Id of the run of a runbook that started it."""
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
    """What it writes to; for a restore where the data directory lies."""
    free_bytes: int | None
    need_bytes: float | None
    """Still to be written there, estimated."""
    fits: bool | None
    phase: str | None
    """Under way."""
    phases: tuple[PhaseNow, ...]
    objects: tuple[ObjectNow, ...]
    """At most OBJECTS_TOLD; running first."""
    counts: tuple[int, int, int, int]
    """Objects running, done, waiting, failed."""
    pct: float | None
    """Of the whole; never back, never 100 while it runs."""
    grade: str
    eta_s: float | None
    eta_grade: str
    """measured, estimated, unknown; `history` where it rests on runs before."""
    errors: int | None
    """So far, where its messages can be read."""
    last_error: str | None
    critical: tuple[str, ...]
    """The chain that decides when it ends: largest table, its indexes, its keys."""
    sources: tuple[str, ...]
    """What was read for it: `toc.dat`, `pg_stat_progress_copy`, `fdinfo of pid 812`, `stderr in /var/log/r.log`."""
    unknown: tuple[str, ...]
    """What is not known and why, in sentences."""
    client: str | None = None
    """Address of the host its program runs on, where that is not this one."""
    done: float | None = None
    """Of the whole's data; None where nobody knows how much there is."""
    total: float | None = None
    unit: str | None = None
    """Of done and total: bytes, rows."""
    rate_per_s: float | None = None
    """Of done, by the last minutes."""
    source: str | None = None
    """Of a restore: the database its archive was made of. Then these two are of restores of it, into whatever."""
    usual_s: float | None = None
    usual_runs: int = 0


OBJECTS_LISTED = 120
"""Objects of one job in a sample: a screen and its page; the rest is told as counts."""


class JobsNow(Struct, array_like=True, frozen=True):
    """Every job under way (part `jobs.now`)."""

    now_us: int
    """Host wall time of the reading."""
    jobs: tuple[JobNow, ...]
