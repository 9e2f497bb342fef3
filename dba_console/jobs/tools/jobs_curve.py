"""Dump time by number of jobs: estimate it from timed runs, and choose the next number to try. Pure functions.

A run gives a rate (table bytes per second while every job was busy) and CPU time. From the rates, the time of a full
dump is computed by scheduling as pg_dump -j does: largest table first, each free job takes the next one. This accounts
for one large table among small ones even if the runs were cut before it was finished.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

TOLERANCE = 0.05
"""Repeated runs of the same dump differ by about this much; a smaller gain does not justify another job."""
OWN_CORE_FACTOR = 0.6
"""Time on a core of its own, relative to the time beside another thread on the same core."""


class TrialRun(Struct, frozen=True, kw_only=True):
    """One timed pg_dump -Fd -j."""

    jobs: int
    wall_s: float
    """From its start to its end, or to the cut."""
    startup_s: float
    """Time before the first table: catalog, locks, snapshot. Independent of -j."""
    complete: bool
    """False: cut, because enough was measured."""
    done: float
    """Table bytes dumped."""
    busy_s: float
    """Time during which every job had a table."""
    busy_done: float
    """Table bytes dumped in that time."""
    client_s: float
    """CPU time of pg_dump and its workers."""
    server_s: float | None = None
    """CPU time of their backends; None if the server runs on another host."""
    host_busy_pct: float | None = None
    """Of all CPUs of this host, for all processes."""
    iowait_pct: float | None = None
    read_bytes: int | None = None
    """By the device of the data directory, for all processes."""
    read_util_pct: float | None = None
    write_util_pct: float | None = None
    """Of the device of the scratch directory."""
    output_bytes: int = 0
    """Bytes written."""

    @property
    def rate(self) -> float:
        """Table bytes per second with all jobs busy."""
        if self.busy_s >= 1 or (self.busy_s > 0 and self.busy_s >= 0.2 * (self.wall_s - self.startup_s)):
            return self.busy_done / self.busy_s
        return self.done / max(self.wall_s - self.startup_s, 1e-3)

    @property
    def cpu_s(self) -> float:
        return self.client_s + (self.server_s or 0.0)

    @property
    def max_job_rate(self) -> float:
        """Table bytes per second that one job cannot exceed: its slower side, pg_dump or backend, at full speed."""
        return self.done / max(self.client_s, self.server_s or 0.0, 1e-3)


RateByJobs = Callable[[int], float]


def interpolate_rates(runs: Mapping[int, TrialRun]) -> RateByJobs:
    """Return the rate for any number of jobs: linear between measured numbers, constant above the highest. Below the
    lowest, it is limited by the maximum rate of one job.

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
    """Return the seconds for all tables: sizes in bytes, largest first, `jobs` at a time sharing the rate equally.

    >>> (predict_seconds([10, 10, 10, 10], lambda jobs: jobs * 1.0, 2),
    ...  predict_seconds([90, 1, 1], lambda jobs: jobs * 1.0, 3))
    (20.0, 90.0)
    """
    left = sorted(sizes, reverse=True)
    ends: list[float] = []
    """For each running table: the end, in bytes processed per running table by then."""
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
    """Return the minimum seconds of the complete dump `run` with another number of jobs, from its CPU time."""
    per_job = max(run.client_s, run.server_s or 0.0) / jobs
    return run.startup_s + max(per_job, run.cpu_s / cpus)


class JobsCurve:
    """Dump time by number of jobs, from runs on one selection of tables; `sizes` are of all tables."""

    def __init__(
        self, sizes: Sequence[float], cpus: int, max_jobs: int, *, all_tables: bool, shared_cores: bool
    ) -> None:
        self.sizes, self.cpus, self.most, self.whole = sizes, cpus, max_jobs, all_tables
        self.runs: dict[int, TrialRun] = {}
        self._core_factor = OWN_CORE_FACTOR if shared_cores else 1.0

    def add(self, run: TrialRun) -> None:
        """Add a run; of two with the same number of jobs keep the faster one, because disturbances only slow down."""
        old = self.runs.get(run.jobs)
        if old is None or run.rate > old.rate:
            self.runs[run.jobs] = run

    def is_measured(self, jobs: int) -> bool:
        """Check whether the time for this number of jobs was measured, not estimated."""
        return self.whole and jobs in self.runs and self.runs[jobs].complete

    def seconds(self, jobs: int) -> float:
        """Return the time of a full dump of the database, measured or estimated."""
        if self.is_measured(jobs):
            return self.runs[jobs].wall_s
        before = min(run.startup_s for run in self.runs.values())
        seconds = before + predict_seconds(self.sizes, interpolate_rates(self.runs), jobs)
        # A run that was cut takes at least as long as it ran.
        return max(seconds, self.runs[jobs].wall_s) if self.whole and jobs in self.runs else seconds

    def best_jobs(self) -> int:
        return min(self.runs, key=lambda jobs: (self.seconds(jobs), jobs))

    def knee(self) -> int:
        """Return the fewest jobs tried whose time exceeds the best by at most TOLERANCE."""
        limit = self.seconds(self.best_jobs()) * (1 + TOLERANCE)
        return min(jobs for jobs in self.runs if self.seconds(jobs) <= limit)

    def next_jobs(self) -> int | None:
        """Return the number of jobs to try next, None if no further trial is needed.

        First the number of CPUs. Then double it while that helps, or could help by CPU time. Then numbers that the
        rates predict to be faster: with ten equal tables, five jobs need two rounds where four need three. Then fewer
        jobs, by bisection; last a single job, for comparison.
        """
        if not self.runs:
            return min(self.cpus, self.most)
        highest, knee = max(self.runs), self.knee()
        if knee == highest and highest < self.most and self._may_improve_above(highest):
            return min(self.most, highest * 2)
        return self._promising_jobs() or self._fewer_jobs(knee) or (1 if 1 not in self.runs else None)

    def _promising_jobs(self) -> int | None:
        """Return an untried number of jobs predicted to be faster than the best by more than TOLERANCE."""
        others = [jobs for jobs in range(1, self.most + 1) if jobs not in self.runs]
        if not others:
            return None
        jobs = min(others, key=lambda one: (self.seconds(one), one))
        return jobs if self.seconds(jobs) < self.seconds(self.best_jobs()) * (1 - TOLERANCE) else None

    def _fewer_jobs(self, knee: int) -> int | None:
        """Return a smaller number of jobs that may be as fast as the knee."""
        fewer = max((jobs for jobs in self.runs if jobs < knee), default=0)
        half = (fewer + knee) // 2
        order = (half, *range(half + 1, knee), *range(half - 1, fewer, -1))
        return next((jobs for jobs in order if fewer < jobs < knee and self.may_suffice(jobs)), None)

    def _may_improve_above(self, jobs: int) -> bool:
        """Check whether more jobs could be faster by more than TOLERANCE, judged by CPU time."""
        run = self.runs[jobs]
        if not run.complete:
            return run.host_busy_pct is None or run.host_busy_pct < 100 * (1 - TOLERANCE)
        return min_seconds(run, self.most, self.cpus) < run.wall_s * (1 - TOLERANCE)

    def may_suffice(self, jobs: int) -> bool:
        """Check whether fewer jobs could be as fast, judged by CPU time."""
        best = self.runs[self.best_jobs()]
        limit = self.seconds(self.best_jobs()) * (1 + TOLERANCE)
        if best.complete and self.whole:
            return min_seconds(best, jobs, self.cpus) * self._core_factor <= limit
        return predict_seconds(self.sizes, lambda active: best.max_job_rate * active, jobs) * self._core_factor <= limit
