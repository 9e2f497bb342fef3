"""The history of jobs on one server: their runs, and since when none can have gone unseen.

Times are kept by the monotonic clock while the agent runs, for it is never set, and written by the wall clock. What was
not watched is not known: a hole in the watch is forgiven only where no usual run fits into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, structs

from dba_console.jobs.history.past_runs import (
    JobRun,
    Moment,
    RunFacts,
    comparable_job_runs,
    intervals_s,
    longest_typical_s,
    make_run,
    trim_runs,
    typical_runs,
    typical_s,
)
from dba_console.watch.samples.jobs import JobKey, JobStatistics

# One run seen by several agents of a server is one run: their lists of runs joined. Pure.
#
# Each agent sees all sessions of the server, so a run that two of them watched is in both lists, with times that
# differ by what lies between two looks, and by whether its program was found or its sessions only.

SAME_RUN_TOLERANCE_US = 5_000_000
SAME_RUN_TOLERANCE_SHARE = 0.05
"""So far apart both beginning and end of one run may be told, whichever is more: by its program or by its sessions, by
one look or by the next."""


def merge_runs(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[JobRun]:
    """All runs of both lists, each once, by their ends; at most as many as are remembered. Both lists are of one job.

    >>> a, b, c = JobRun(0, 600.0, True), JobRun(1_000_000, 601.0, True, bytes=5), JobRun(9_000_000_000, 600.0, True)
    >>> merge_runs([a, c], [b]) == [JobRun(1_000_000, 601.0, False, bytes=5), c]
    True
    """
    ours, others = _with_first_unlinked(ours), _with_first_unlinked(others)
    pairs = find_same_runs(ours, others)
    runs = [_more_complete(ours[at], others[there]) for at, there in pairs]
    both, theirs = {at for at, _ in pairs}, {there for _, there in pairs}
    runs += [run for at, run in enumerate(ours) if at not in both]
    runs += [run for there, run in enumerate(others) if there not in theirs]
    return trim_runs(sorted(runs, key=lambda run: (run.ended_us, run.started_us)))


def find_same_runs(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[tuple[int, int]]:
    """Places in both lists of what is one run: each is at most one of the other list, that which began nearest.

    Of a job that ran twice at once both lists have both.
    """
    near = [
        (abs(mine.started_us - theirs.started_us), at, there)
        for at, mine in enumerate(ours)
        for there, theirs in enumerate(others)
        if _is_same_run(mine, theirs)
    ]
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for _, at, there in sorted(near):
        if at not in pairs and there not in taken:
            pairs[at] = there
            taken.add(there)
    return list(pairs.items())


def _is_same_run(one: JobRun, other: JobRun) -> bool:
    apart_us = max(SAME_RUN_TOLERANCE_US, SAME_RUN_TOLERANCE_SHARE * 1e6 * max(one.seconds, other.seconds))
    began_us, ended_us = abs(one.started_us - other.started_us), abs(one.ended_us - other.ended_us)
    return began_us <= apart_us and ended_us <= apart_us


def _with_first_unlinked(runs: Sequence[JobRun]) -> list[JobRun]:
    """The first run of a list says nothing of what was before it: what it followed is forgotten, or was not watched."""
    return [structs.replace(run, unbroken=run.unbroken and index > 0) for index, run in enumerate(runs)]


def _more_complete(one: JobRun, other: JobRun) -> JobRun:
    """The one of which more is known. The time before it was watched if one of the agents did."""
    best = max(one, other, key=lambda run: (sum(one not in (None, ()) for one in structs.astuple(run)), run.seconds))
    return structs.replace(best, unbroken=one.unbroken or other.unbroken)


MAX_JOBS = 200
"""Jobs remembered per server; those that ran last are kept."""
UNLIMITED_GAP_US = 1 << 60
"""A hole into which every run fits."""


class KeptJob(Struct):
    """One job as the file has it; times are host wall times."""

    kind: str
    database: str | None
    user: str | None
    watched_since_us: Moment
    runs: list[JobRun]


class ReportedProgress(Struct, array_like=True, frozen=True, gc=False):
    """What was last said of a job under way: the next agent takes nothing back."""

    kind: str
    process: int
    started_us: int
    """Host wall time."""
    pct: Annotated[float, Meta(ge=0, le=100)]


class KeptServer(Struct, frozen=True):
    """Of which server a history is; None where that is not known."""

    address: str
    """As `dba_console.core.target.Address.server` has it."""
    system_identifier: str | None = None
    directory: str | None = None
    """Its data directory, where it was proven to run on this host."""


class KeptHistory(Struct):
    """The file."""

    until_us: Moment
    """When it was written: until then everything was watched."""
    jobs: list[KeptJob]
    running: list[JobKey] = []
    """Jobs under way then: one that is not when it is read, ended while nobody watched."""
    version: int = 1
    shares: list[ReportedProgress] = []
    server: KeptServer | None = None
    """None in a file of a time when a history was that of a target: the database connected to was part of it."""


@dataclass
class _JobRecord:
    runs: list[JobRun] = field(default_factory=list)
    ends_us: list[int] = field(default_factory=list)
    """Monotonic ends of `runs`."""
    watched_since_us: int = 0
    """Monotonic."""


class JobHistory:
    """Used by one thread. All times given to it are the host's: `wall_us` and `mono_us` of the same moment."""

    def __init__(self, mono_us: int) -> None:
        self._records: dict[JobKey, _JobRecord] = {}
        self._watched_since_us = mono_us

    def __bool__(self) -> bool:
        return bool(self._records)

    def add_run(
        self, key: JobKey, seconds: float, ended_us: int, wall_us: int, mono_us: int, told: RunFacts | None = None
    ) -> None:
        """Remember a run that ended at monotonic `ended_us` after so many seconds, with what else is known of it."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _JobRecord(watched_since_us=self._watched_since_us)
        unbroken = bool(record.ends_us) and record.watched_since_us <= record.ends_us[-1]
        started_us = wall_us - (mono_us - ended_us) - int(seconds * 1e6)
        record.runs.append(make_run(started_us, seconds, unbroken, told))
        record.ends_us.append(ended_us)
        _trim(record)
        if len(self._records) > MAX_JOBS:
            del self._records[min(self._records, key=lambda one: self._records[one].ends_us[-1])]

    def add_gap(self, from_us: int, to_us: int, gone: Iterable[JobKey] = ()) -> None:
        """Nothing was read between these monotonic times; `gone` ended somewhere in it."""
        self._watched_since_us = to_us
        gone = set(gone)
        for key, record in self._records.items():
            usual = typical_s(record.runs)
            if key in gone or usual is None or usual * 1e6 <= to_us - from_us:
                record.watched_since_us = to_us

    def typical_s(self, key: JobKey, source: str | None = None) -> float | None:
        """How long the job usually takes, None where that is not known; `source` as in `alike`."""
        return typical_s(comparable_job_runs(self.runs({key[0]}), key, source))

    def runs(self, kinds: Set[str]) -> dict[JobKey, tuple[JobRun, ...]]:
        """All runs of these programs."""
        return {key: tuple(record.runs) for key, record in self._records.items() if key[0] in kinds}

    def past_jobs(self, wall_us: int, mono_us: int) -> list[JobStatistics]:
        """What is known of every job."""
        return [_past_job(key, record, wall_us - mono_us) for key, record in self._records.items()]

    def to_file_record(
        self,
        running: Iterable[JobKey],
        wall_us: int,
        mono_us: int,
        shares: Iterable[ReportedProgress] = (),
        server: KeptServer | None = None,
    ) -> KeptHistory:
        """As the file has it; `running` are the jobs under way, `shares` how far they were said to be."""
        apart_us = wall_us - mono_us
        return KeptHistory(
            wall_us,
            [KeptJob(*key, one.watched_since_us + apart_us, list(one.runs)) for key, one in self._records.items()],
            list(running),
            shares=list(shares),
            server=server,
        )

    def restore(self, kept: KeptHistory, running: Iterable[JobKey], wall_us: int, mono_us: int) -> None:
        """Begin with what the file has; from its last word until now, when `running` are, nothing was watched."""
        apart_us = wall_us - mono_us
        for job in kept.jobs[-MAX_JOBS:]:
            ends_us = [run.ended_us - apart_us for run in job.runs]
            since_us = job.watched_since_us - apart_us
            key = (job.kind, job.database, job.user)
            if (record := self._records.get(key)) is not None:  # it ended once more while the file was read
                told = {index for index, _ in find_same_runs(record.runs, job.runs)}
                ours = [index for index in range(len(record.runs)) if index not in told]
                record.ends_us = [*ends_us, *(record.ends_us[index] for index in ours)]
                record.runs = [*job.runs, *(record.runs[index] for index in ours)]
            elif job.runs:
                self._records[key] = _JobRecord(list(job.runs), ends_us, since_us)
        # By a clock set back the file is of the future, and how long the hole is cannot be told.
        from_us = kept.until_us - apart_us if kept.until_us <= wall_us else mono_us - UNLIMITED_GAP_US
        self.add_gap(from_us, mono_us, set(kept.running) - set(running))


def _trim(record: _JobRecord) -> None:
    kept = set(map(id, trim_runs(record.runs)))
    both = [(run, end) for run, end in zip(record.runs, record.ends_us, strict=True) if id(run) in kept]
    record.runs, record.ends_us = [run for run, _ in both], [end for _, end in both]


def _past_job(key: JobKey, record: _JobRecord, apart_us: int) -> JobStatistics:
    telling = typical_runs(record.runs)
    ends = {id(run): end for run, end in zip(record.runs, record.ends_us, strict=True)}
    last = telling[-1] if telling else None
    distances = intervals_s(record.runs)
    return JobStatistics(
        *key,
        runs=len(telling),
        usual_s=typical_s(record.runs),
        interval_s=median(distances) if distances else None,
        intervals=len(distances),
        longest_interval_s=longest_typical_s(distances),
        last_ended_us=None if last is None else ends[id(last)] + apart_us,
        last_s=None if last is None else last.seconds,
        watched_since_us=record.watched_since_us + apart_us,
    )
