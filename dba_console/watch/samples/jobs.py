"""Readings of long jobs: which dumps, restores and similar programs run now, and statistics of earlier runs.

The agent observes jobs start and end among the sessions and keeps their durations; they are part of the sample, so that
a replay shows what was typical then. Structs are stored by position (`array_like`): a field may be added at the end
with a default, never moved or removed.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.part import DatabaseName, HostName, NameKind, RelationName, UserName

_Path = Annotated[str, NameKind("path")]

JobKey = tuple[str, str | None, str | None]
"""Program, database, user: runs with the same key are compared."""


class JobStatistics(Struct, array_like=True, frozen=True, gc=False):
    """Statistics of the runs of one job: a program, as one user, in one database."""

    kind: str
    """pg_dump, pg_restore, ...: the program."""
    database: DatabaseName | None
    """None for a base backup, which covers all."""
    user: UserName | None
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
    format: str | None = None
    """Of a dump, if known: custom, directory, plain, … Each format has statistics of its own."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class RunningJob(Struct, array_like=True, frozen=True, gc=False):
    """A job that runs now."""

    kind: str
    database: DatabaseName | None
    user: UserName | None
    pid: int
    """Backend of the session connected first, if it still exists."""
    started: int | None
    """Server's clock; None if this role cannot see it."""
    elapsed_s: float | None
    """As of the reading, by the monotonic clock; None if the start is not known."""
    format: str | None = None
    """Of a dump, if its program was found."""

    @property
    def key(self) -> JobKey:
        return self.kind, self.database, self.user


class Jobs(Struct, array_like=True, frozen=True):
    """Long jobs of one target: running ones, and statistics of earlier runs."""

    now_us: int
    """Host wall time of the reading."""
    past: list[JobStatistics]
    running: list[RunningJob]

    def statistics_of(self, key: JobKey, format: str | None = None) -> JobStatistics | None:
        """Return the statistics of one job, None if there are none, or only of dumps of another format."""
        own = [one for one in self.past if one.key == key]
        if format is not None and (same := next((one for one in own if one.format == format), None)) is not None:
            return same
        return own[0] if len(own) == 1 and None in (format, own[0].format) else None

    def has_formats(self, key: JobKey) -> bool:
        """Return whether this dump is made in several formats."""
        return sum(one.key == key for one in self.past) > 1


# Fields that a sample and a row of the progress panel have in common. None: unknown.
#
# Rows are filled step by step, samples are frozen: msgspec allows that for structs with common fields and enforces it,
# mypy knows only the rule of dataclasses.


class PhaseFacts(Struct, kw_only=True):
    """Progress of one phase of a dump or restore. Phases overlap with -j."""

    name: str
    """schema, data, indexes, constraints, rest; or as a progress view names it."""
    state: str = "unknown"
    """waiting, running, done, unknown."""
    items: int | None = None
    """Number of its objects."""
    items_done: int = 0
    items_running: int = 0
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    """Of done and total: bytes, rows."""
    pct: float | None = None
    grade: str = "unknown"
    """measured, estimated, unknown: how pct is known."""
    wall_s: float | None = None
    """From its first object's start to now, or to its last one's end."""
    busy_s: float | None = None
    """Sum over all its objects: with -j more than wall_s."""
    eta_s: float | None = None
    eta_grade: str = "unknown"


class PhaseNow(PhaseFacts, kw_only=True, array_like=True, frozen=True, gc=False):  # type: ignore[misc]
    """One phase in a sample."""

    started_us: int | None = None
    """Host wall time."""


class ObjectFacts(Struct, kw_only=True):
    """One object of a dump or restore."""

    name: RelationName
    """With its schema, as the server quotes it; sanitized."""
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
    elapsed_s: float | None = None
    eta_s: float | None = None
    pid: int | None = None
    """Backend that processes it."""
    note: str | None = None
    """The error, what it waits for, the sub-phase."""


class ObjectNow(ObjectFacts, kw_only=True, array_like=True, frozen=True, gc=False):  # type: ignore[misc]
    """One object in a sample, ordered: running, failed, largest waiting, last done."""

    started_us: int | None = None


class ProgramFacts(Struct, kw_only=True):
    """The program of a dump or restore, its input and its output."""

    client: HostName | None = None
    """Address of the host it runs on, if not this one."""
    run: str | None = None
    """Id of the runbook run that started it."""
    version: str | None = None
    """Version of the program."""
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    jobs: int | None = None
    """-j."""
    command: str | None = None
    """The command line; redacted, sanitized."""
    reads: _Path | None = None
    """File or directory it reads."""
    read_bytes: int | None = None
    read_size_bytes: int | None = None
    writes: _Path | None = None
    """File or directory it writes."""
    written_bytes: int | None = None
    written_per_s: float | None = None
    mount: str | None = None
    """Mount it writes to; for a restore the one of the data directory."""
    free_bytes: int | None = None
    need_bytes: float | None = None
    """Still to be written there, estimated."""
    fits: bool | None = None
    """Whether the free space suffices."""


class JobFacts(ProgramFacts, kw_only=True):
    """A dump, a restore or another long operation: its program and its progress."""

    kind: str
    """The program: pg_dump, pg_restore, psql, pg_basebackup, …; or the command of a session."""
    database: DatabaseName | None = None
    user: UserName | None = None
    phase: str | None = None
    """The running one."""
    done: float | None = None
    total: float | None = None
    unit: str | None = None
    """Of done and total: bytes, rows."""
    pct: float | None = None
    """Never decreasing, never 100 while it runs."""
    grade: str = "unknown"
    """measured, estimated or unknown: how pct is known."""
    rate_per_s: float | None = None
    """Of done, over the last minutes."""
    elapsed_s: float | None = None
    eta_s: float | None = None
    eta_grade: str = "unknown"
    """measured, estimated, history (from earlier runs), unknown."""
    errors: int | None = None
    """Errors so far; None if its messages cannot be read."""
    last_error: str | None = None
    source: DatabaseName | None = None
    """For a restore: the database its archive was made from; usual_s is then that of restores of this database."""
    usual_s: float | None = None
    """Typical duration."""


class JobNow(JobFacts, kw_only=True, array_like=True, frozen=True, gc=False):  # type: ignore[misc]
    """One running dump, restore or the like in a sample. Its progress is that of the whole."""

    pid: int | None
    """Its process on this host."""
    backends: tuple[int, ...]
    """Its sessions; the first is the one connected first."""
    started_us: int | None = None
    """Host wall time."""
    phases: tuple[PhaseNow, ...] = ()
    objects: tuple[ObjectNow, ...] = ()
    """At most OBJECTS_LISTED; running first."""
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Objects running, done, waiting, failed."""
    critical: tuple[str, ...] = ()
    """The critical path: largest table, its indexes, its keys."""
    sources: tuple[str, ...]
    """Data sources used: `toc.dat`, `pg_stat_progress_copy`, `fdinfo of pid 812`, `stderr in /var/log/r.log`."""
    unknown: tuple[str, ...]
    """What is unknown and why, in sentences."""
    usual_runs: int = 0
    """Number of runs that usual_s is the median of."""


OBJECTS_LISTED = 120
"""Objects of one job in a sample: enough for a screen and its page; the rest is only counted."""


class JobsNow(Struct, array_like=True, frozen=True):
    """All running jobs (part `jobs.now`)."""

    now_us: int
    """Host wall time of the reading."""
    jobs: tuple[JobNow, ...]
