"""The job history of one server: the runs of each job, and since when it was observed without a gap.

Times are kept by the monotonic clock while the agent runs, because it is never adjusted, and written as wall clock
times. A gap in the observation is ignored only if it is shorter than a typical run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, structs

from dba_console.jobs.history.run_statistics import (
    JobRun,
    Moment,
    RunFacts,
    comparable_job_runs,
    intervals_s,
    longest_typical_s,
    make_run,
    runs_by_format,
    trim_runs,
    typical_runs,
    typical_s,
)
from dba_console.watch.samples.jobs import JobKey, JobStatistics

# Merge the runs recorded by several agents of one server. Pure functions.
#
# Each agent observes all sessions of the server, so a run observed by two agents is recorded by both. Its times differ
# by up to the time between two scans, and by whether its program or only its sessions were found.

SAME_RUN_TOLERANCE_US = 5_000_000
SAME_RUN_TOLERANCE_SHARE = 0.05
"""Allowed difference of start and end of the same run, whichever is more."""


def merge_runs(ours: Sequence[JobRun], others: Sequence[JobRun]) -> list[JobRun]:
    """Merge two lists of runs of one job, each run once, sorted by end, at most MAX_RUNS.

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
    """Return the index pairs of identical runs: each run matches at most one of the other list, with the nearest start.

    If a job ran twice at the same time, both lists have both runs.
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
    """Clear `unbroken` of the first run: the run before it was trimmed or not observed."""
    return [structs.replace(run, unbroken=run.unbroken and index > 0) for index, run in enumerate(runs)]


def _more_complete(one: JobRun, other: JobRun) -> JobRun:
    """Return the run with more known fields; `unbroken` if one of the agents observed the time before it."""
    best = max(one, other, key=lambda run: (sum(one not in (None, ()) for one in structs.astuple(run)), run.seconds))
    return structs.replace(best, unbroken=one.unbroken or other.unbroken)


MAX_JOBS = 200
"""Maximum jobs per server; the most recent ones are kept."""
UNLIMITED_GAP_US = 1 << 60
"""A gap longer than any run."""


class KeptJob(Struct):
    """One job in the file; times are host wall times."""

    kind: str
    database: str | None
    user: str | None
    watched_since_us: Moment
    runs: list[JobRun]


class ReportedProgress(Struct, array_like=True, frozen=True, gc=False):
    """The last reported percentage of a running job, so that it never decreases after an agent restart."""

    kind: str
    process: int
    started_us: int
    """Host wall time."""
    pct: Annotated[float, Meta(ge=0, le=100)]


class KeptHistory(Struct):
    """The content of a history file."""

    until_us: Moment
    """When it was written: until then everything was observed."""
    jobs: list[KeptJob]
    running: list[JobKey] = []
    """Jobs running then: one that is not running when the file is read ended unobserved."""
    shares: list[ReportedProgress] = []


def add_unknown_runs(history: KeptHistory, kept: KeptHistory) -> KeptHistory:
    """Return the history of an agent with the runs in the file that other agents of the server added."""
    jobs = {(job.kind, job.database, job.user): job for job in kept.jobs}
    for job in history.jobs:
        key = (job.kind, job.database, job.user)
        others = jobs[key].runs if key in jobs else job.runs
        runs = job.runs if others == job.runs else merge_runs(others, job.runs)
        jobs[key] = structs.replace(job, runs=runs)
    newest = sorted(jobs.values(), key=lambda job: job.runs[-1].ended_us if job.runs else 0)[-MAX_JOBS:]
    return structs.replace(history, jobs=newest)


@dataclass
class _JobRecord:
    runs: list[JobRun] = field(default_factory=list)
    ends_us: list[int] = field(default_factory=list)
    """Monotonic ends of `runs`."""
    watched_since_us: int = 0
    """Monotonic."""


class JobHistory:
    """The history of all jobs of one server. Not thread-safe. `wall_us` and `mono_us` are always the same moment."""

    def __init__(self, mono_us: int) -> None:
        self._records: dict[JobKey, _JobRecord] = {}
        self._watched_since_us = mono_us

    def __bool__(self) -> bool:
        return bool(self._records)

    def add_run(
        self, key: JobKey, seconds: float, ended_us: int, wall_us: int, mono_us: int, facts: RunFacts | None = None
    ) -> None:
        """Add a run of `seconds` that ended at monotonic `ended_us`, with its facts."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _JobRecord(watched_since_us=self._watched_since_us)
        unbroken = bool(record.ends_us) and record.watched_since_us <= record.ends_us[-1]
        started_us = wall_us - (mono_us - ended_us) - int(seconds * 1e6)
        record.runs.append(make_run(started_us, seconds, unbroken, facts))
        record.ends_us.append(ended_us)
        _trim(record)
        if len(self._records) > MAX_JOBS:
            del self._records[min(self._records, key=lambda one: self._records[one].ends_us[-1])]

    def add_gap(self, from_us: int, to_us: int, gone: Iterable[JobKey] = ()) -> None:
        """Record that nothing was observed between these monotonic times; `gone` ended in the gap."""
        self._watched_since_us = to_us
        gone = set(gone)
        for key, record in self._records.items():
            usual = typical_s(record.runs)
            if key in gone or usual is None or usual * 1e6 <= to_us - from_us:
                record.watched_since_us = to_us

    def typical_s(self, key: JobKey, source: str | None = None, format: str | None = None) -> float | None:
        """Return the typical duration of the job, None if unknown; arguments as of `comparable_job_runs`."""
        return typical_s(comparable_job_runs(self.runs({key[0]}), key, source, format))

    def runs(self, kinds: Set[str]) -> dict[JobKey, tuple[JobRun, ...]]:
        """Return all runs of these programs."""
        return {key: tuple(record.runs) for key, record in self._records.items() if key[0] in kinds}

    def past_jobs(self, wall_us: int, mono_us: int) -> list[JobStatistics]:
        """Return the statistics of all jobs, of a dump for each of its formats."""
        return [
            _past_job(key, record, form, own, wall_us - mono_us)
            for key, record in self._records.items()
            for form, own in runs_by_format(key[0], record.runs).items()
        ]

    def to_file_record(
        self,
        running: Iterable[JobKey],
        wall_us: int,
        mono_us: int,
        shares: Iterable[ReportedProgress] = (),
    ) -> KeptHistory:
        """Return the content of the file; `running` are the running jobs, `shares` their last reported percentages."""
        apart_us = wall_us - mono_us
        return KeptHistory(
            wall_us,
            [KeptJob(*key, one.watched_since_us + apart_us, list(one.runs)) for key, one in self._records.items()],
            list(running),
            shares=list(shares),
        )

    def restore(self, kept: KeptHistory, running: Iterable[JobKey], wall_us: int, mono_us: int) -> None:
        """Load the content of a file; the time from its end until now is a gap. `running` are the jobs running now."""
        apart_us = wall_us - mono_us
        for job in kept.jobs[-MAX_JOBS:]:
            ends_us = [run.ended_us - apart_us for run in job.runs]
            since_us = job.watched_since_us - apart_us
            key = (job.kind, job.database, job.user)
            if (record := self._records.get(key)) is not None:  # another run ended while the file was read
                known = {index for index, _ in find_same_runs(record.runs, job.runs)}
                ours = [index for index in range(len(record.runs)) if index not in known]
                record.ends_us = [*ends_us, *(record.ends_us[index] for index in ours)]
                record.runs = [*job.runs, *(record.runs[index] for index in ours)]
            elif job.runs:
                self._records[key] = _JobRecord(list(job.runs), ends_us, since_us)
        # If the clock was set back, the file is from the future and the length of the gap is unknown.
        from_us = kept.until_us - apart_us if kept.until_us <= wall_us else mono_us - UNLIMITED_GAP_US
        self.add_gap(from_us, mono_us, set(kept.running) - set(running))


def _trim(record: _JobRecord) -> None:
    kept = set(map(id, trim_runs(record.runs)))
    both = [(run, end) for run, end in zip(record.runs, record.ends_us, strict=True) if id(run) in kept]
    record.runs, record.ends_us = [run for run, _ in both], [end for _, end in both]


def _past_job(key: JobKey, record: _JobRecord, form: str | None, own: Sequence[JobRun], apart_us: int) -> JobStatistics:
    typical = typical_runs(own)
    ends = {id(run): end for run, end in zip(record.runs, record.ends_us, strict=True)}
    last = typical[-1] if typical else None
    distances = intervals_s(record.runs, own)
    return JobStatistics(
        *key,
        runs=len(typical),
        usual_s=typical_s(own),
        interval_s=median(distances) if distances else None,
        intervals=len(distances),
        longest_interval_s=longest_typical_s(distances),
        last_ended_us=None if last is None else ends[id(last)] + apart_us,
        last_s=None if last is None else last.seconds,
        watched_since_us=record.watched_since_us + apart_us,
        format=form,
    )
