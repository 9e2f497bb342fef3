"""Dump time by number of jobs: estimate it from timed runs, and choose the next number to try. Pure functions.

A run gives a rate: table bytes per second while every job was busy. If it was cut, the time of a full dump is computed
by scheduling as pg_dump -j does: largest table first, each free job takes the next one. This accounts for one large
table among small ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec import Struct

TOLERANCE = 0.05
"""Repeated runs of the same dump differ by about this much; a smaller gain does not justify another job."""
DOUBLING_GAIN = 0.1
"""Twice as many jobs are tried as long as the last doubling saved more than this."""


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


def predict_seconds(sizes: Sequence[float], rate: float, job_rate: float, jobs: int) -> float:
    """Return the seconds for all tables: sizes in bytes, largest first, `jobs` at a time sharing the rate equally. No
    job is faster than `job_rate`.

    >>> (predict_seconds([10, 10, 10, 10], 2, 1, 2), predict_seconds([90, 1, 1], 3, 1, 3))
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
        seconds += (end - given) / max(min(job_rate, rate / (len(ends) + 1)), 1e-9)
        given = end
    return seconds


class JobsCurve:
    """Dump time by number of jobs, from runs on one selection of tables; `sizes` are of all tables."""

    def __init__(self, sizes: Sequence[float], cpus: int, max_jobs: int, *, all_tables: bool) -> None:
        self.sizes, self.cpus, self.most, self.whole = sizes, cpus, max_jobs, all_tables
        self.runs: dict[int, TrialRun] = {}
        self._refined = False

    def add(self, run: TrialRun) -> None:
        """Add a run; of two with the same number of jobs keep the faster one, because disturbances only slow down."""
        old = self.runs.get(run.jobs)
        if old is None or run.rate > old.rate:
            self.runs[run.jobs] = run

    def is_measured(self, jobs: int) -> bool:
        """Check whether the time for this number of jobs was measured, not estimated."""
        return self.whole and self.runs[jobs].complete

    def seconds(self, jobs: int) -> float:
        """Return the time of a full dump of the database with a number of jobs that was tried."""
        run = self.runs[jobs]
        if self.is_measured(jobs):
            return run.wall_s
        alone = self.runs[1].rate if 1 in self.runs else run.max_job_rate
        seconds = run.startup_s + predict_seconds(self.sizes, run.rate, max(alone, run.rate / jobs), jobs)
        # A run that was cut takes at least as long as it ran.
        return max(seconds, run.wall_s) if self.whole else seconds

    def best_jobs(self) -> int:
        return min(self.runs, key=lambda jobs: (self.seconds(jobs), jobs))

    def recommended_jobs(self) -> int:
        """Return the fewest jobs tried whose time exceeds the best by at most TOLERANCE."""
        limit = self.seconds(self.best_jobs()) * (1 + TOLERANCE)
        return min(jobs for jobs in self.runs if self.seconds(jobs) <= limit)

    def next_jobs(self) -> int | None:
        """Return the number of jobs to try next, None if no further trial is needed.

        From one job, doubled as long as that helps; then once the middle between the best number and the next higher
        one that was tried, or the next lower one.
        """
        if not self.runs:
            return 1
        highest = max(self.runs)
        if highest < self.most and self._doubling_helped(highest):
            return min(self.most, highest * 2)
        if self._refined:
            return None
        self._refined = True
        best = self.best_jobs()
        more = min((jobs for jobs in self.runs if jobs > best), default=best)
        fewer = max((jobs for jobs in self.runs if jobs < best), default=best)
        middles = [(low + high) // 2 for low, high in ((best, more), (fewer, best)) if high - low > 1]
        return middles[0] if middles else None

    def _doubling_helped(self, highest: int) -> bool:
        others = [self.seconds(jobs) for jobs in self.runs if jobs != highest]
        return not others or self.seconds(highest) < min(others) * (1 - DOUBLING_GAIN)
