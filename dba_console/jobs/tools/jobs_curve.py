"""How long a dump takes with how many jobs: what timed runs say, what follows for the others, which to try next. Pure.

A run gives a rate (bytes of tables a second while every job had work) and processor time. From the rates, the time of a
whole dump follows by doing as pg_dump -j does: the biggest table first, each free job takes the next one. So one big
table among small ones is seen for what it is, also where the runs were cut short and never came to its end.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

TOLERANCE = 0.05
"""Runs of one and the same dump differ by about this much; what gains no more is not worth another job."""
OWN_CORE_FACTOR = 0.6
"""Of its time beside another thread on the same core, what work takes on a core of its own."""


class TrialRun(Struct, frozen=True, kw_only=True):
    """One timed pg_dump -Fd -j."""

    jobs: int
    wall_s: float
    """From its start to its end, or to where it was cut."""
    startup_s: float
    """Of that before the first table: catalog, locks, snapshot. The same whatever -j."""
    complete: bool
    """False: cut, because what was to be known was known."""
    done: float
    """Bytes of tables dumped."""
    busy_s: float
    """As long as every job had a table."""
    busy_done: float
    """Bytes of tables dumped in that time."""
    client_s: float
    """Processor time of pg_dump and its workers."""
    server_s: float | None = None
    """Processor time of their sessions; None where the server runs elsewhere."""
    host_busy_pct: float | None = None
    """Of all processors of this host, whoever used them."""
    iowait_pct: float | None = None
    read_bytes: int | None = None
    """By the device under the data, whoever asked for it."""
    read_util_pct: float | None = None
    write_util_pct: float | None = None
    """Of the device the scratch directory lies on."""
    output_bytes: int = 0
    """Size of what it wrote."""

    @property
    def rate(self) -> float:
        """Bytes of tables a second with all jobs at work."""
        if self.busy_s >= 1 or (self.busy_s > 0 and self.busy_s >= 0.2 * (self.wall_s - self.startup_s)):
            return self.busy_done / self.busy_s
        return self.done / max(self.wall_s - self.startup_s, 1e-3)

    @property
    def cpu_s(self) -> float:
        return self.client_s + (self.server_s or 0.0)

    @property
    def max_job_rate(self) -> float:
        """Bytes of tables a second that one job cannot exceed: its slower side, pg_dump or session, at full speed."""
        return self.done / max(self.client_s, self.server_s or 0.0, 1e-3)


RateByJobs = Callable[[int], float]


def interpolate_rates(runs: Mapping[int, TrialRun]) -> RateByJobs:
    """The rate with any number of jobs: as measured, in between on a line, above as with the most jobs measured. Below
    the fewest measured: as far as one job's own processors allow.

    >>> one = dict(wall_s=10, startup_s=0, complete=True, done=100, busy_s=10, client_s=20)
    >>> rate = interpolate_rates({2: TrialRun(jobs=2, busy_done=100, **one), 4: TrialRun(jobs=4, busy_done=140, **one)})
    >>> [rate(jobs) for jobs in (1, 2, 3, 4, 9)]
    [5.0, 10.0, 12.0, 14.0, 14.0]
    """
    known = sorted((jobs, run.rate) for jobs, run in runs.items())

    def rate(jobs: int) -> float:
        if jobs <= known[0][0]:
            fewest, at_fewest = known[0]
            stream = max(at_fewest / fewest, runs[fewest].max_job_rate)
            return at_fewest if jobs == fewest else min(at_fewest, stream * jobs)
        for (low, at_low), (high, at_high) in itertools.pairwise(known):
            if jobs <= high:
                return at_low + (at_high - at_low) * (jobs - low) / (high - low)
        return known[-1][1]

    return rate


def predict_seconds(sizes: Sequence[float], rate: RateByJobs, jobs: int) -> float:
    """Seconds for all tables: sizes in bytes, biggest first, `jobs` of them at a time sharing the rate equally.

    >>> (predict_seconds([10, 10, 10, 10], lambda jobs: jobs * 1.0, 2),
    ...  predict_seconds([90, 1, 1], lambda jobs: jobs * 1.0, 3))
    (20.0, 90.0)
    """
    left = sorted(sizes, reverse=True)
    ends: list[float] = []
    """Of the tables under way: where each ends, in bytes that every one of them has been given by then."""
    given = seconds = 0.0
    position = 0
    while position < len(left) or ends:
        while position < len(left) and len(ends) < jobs:
            heapq.heappush(ends, given + left[position])
            position += 1
        end = heapq.heappop(ends)
        active = len(ends) + 1
        seconds += (end - given) * active / max(rate(active), 1e-9)
        given = end
    return seconds


def min_seconds(run: TrialRun, jobs: int, cpus: int) -> float:
    """Seconds the dump of `run`, a whole one, cannot be quicker than with other jobs: its processor time is given."""
    per_job = max(run.client_s, run.server_s or 0.0) / jobs
    return run.startup_s + max(per_job, run.cpu_s / cpus)


class JobsCurve:
    """What is known after some runs of one selection of tables, `sizes` of the whole database."""

    def __init__(
        self, sizes: Sequence[float], cpus: int, max_jobs: int, *, all_tables: bool, shared_cores: bool
    ) -> None:
        self.sizes, self.cpus, self.most, self.whole = sizes, cpus, max_jobs, all_tables
        self.runs: dict[int, TrialRun] = {}
        self._core_factor = OWN_CORE_FACTOR if shared_cores else 1.0

    def add(self, run: TrialRun) -> None:
        """Take a run in; of two with as many jobs, the quicker one, for what disturbs only delays."""
        old = self.runs.get(run.jobs)
        if old is None or run.rate > old.rate:
            self.runs[run.jobs] = run

    def is_measured(self, jobs: int) -> bool:
        """Whether the time with so many jobs is that of a run, and not reckoned."""
        return self.whole and jobs in self.runs and self.runs[jobs].complete

    def seconds(self, jobs: int) -> float:
        """A whole dump of the database."""
        if self.is_measured(jobs):
            return self.runs[jobs].wall_s
        before = min(run.startup_s for run in self.runs.values())
        seconds = before + predict_seconds(self.sizes, interpolate_rates(self.runs), jobs)
        # One that was cut had not come to its end by then.
        return max(seconds, self.runs[jobs].wall_s) if self.whole and jobs in self.runs else seconds

    def best_jobs(self) -> int:
        return min(self.runs, key=lambda jobs: (self.seconds(jobs), jobs))

    def knee(self) -> int:
        """The fewest jobs, of those tried, with which it takes no longer than the best by more than NEAR."""
        limit = self.seconds(self.best_jobs()) * (1 + TOLERANCE)
        return min(jobs for jobs in self.runs if self.seconds(jobs) <= limit)

    def next_jobs(self) -> int | None:
        """The number of jobs to try next, None where it is known well enough.

        First as many as there are processors. Twice as many as long as that helps, or could by the processor time they
        took. Then what the rates promise to be better: with ten equal tables, five jobs are done in two rounds where
        four need three. Then fewer, halving the distance; at last one alone, for comparison.
        """
        if not self.runs:
            return min(self.cpus, self.most)
        highest, knee = max(self.runs), self.knee()
        if knee == highest and highest < self.most and self._may_improve_above(highest):
            return min(self.most, highest * 2)
        return self._promising_jobs() or self._fewer_jobs(knee) or (1 if 1 not in self.runs else None)

    def _promising_jobs(self) -> int | None:
        """What has not been tried and should be quicker than the best by more than NEAR."""
        others = [jobs for jobs in range(1, self.most + 1) if jobs not in self.runs]
        if not others:
            return None
        jobs = min(others, key=lambda one: (self.seconds(one), one))
        return jobs if self.seconds(jobs) < self.seconds(self.best_jobs()) * (1 - TOLERANCE) else None

    def _fewer_jobs(self, knee: int) -> int | None:
        """Fewer jobs that may do as well as the knee."""
        fewer = max((jobs for jobs in self.runs if jobs < knee), default=0)
        half = (fewer + knee) // 2
        order = (half, *range(half + 1, knee), *range(half - 1, fewer, -1))
        return next((jobs for jobs in order if fewer < jobs < knee and self.may_suffice(jobs)), None)

    def _may_improve_above(self, jobs: int) -> bool:
        """Whether more jobs could make it quicker by more than NEAR, for all that processors tell."""
        run = self.runs[jobs]
        if not run.complete:
            return run.host_busy_pct is None or run.host_busy_pct < 100 * (1 - TOLERANCE)
        return min_seconds(run, self.most, self.cpus) < run.wall_s * (1 - TOLERANCE)

    def may_suffice(self, jobs: int) -> bool:
        """Whether fewer jobs could do as well, for all that is known: their processor time alone may forbid it."""
        best = self.runs[self.best_jobs()]
        limit = self.seconds(self.best_jobs()) * (1 + TOLERANCE)
        if best.complete and self.whole:
            return min_seconds(best, jobs, self.cpus) * self._core_factor <= limit
        return predict_seconds(self.sizes, lambda active: best.max_job_rate * active, jobs) * self._core_factor <= limit
