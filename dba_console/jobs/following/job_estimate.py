"""Estimate a running job: percentage, ETA, and the space its disk still needs. A disk may hang: only in a lane."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import psutil
from msgspec import structs

from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.archives.object_durations import PreviousRun, RunObject, RunPhase
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.progress_forecast import ForecastState, PhaseForecast, ProgressForecast, forecast
from dba_console.jobs.following.database_catalog import CatalogAnswer, CatalogReader
from dba_console.jobs.following.object_list import QUERY_AFTER_S
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram
from dba_console.jobs.history.kept_history import ReportedProgress
from dba_console.jobs.history.run_statistics import JobRun
from dba_console.watch.samples.postgres import Server

# Progress of psql with a script: the share of the file that is read, then the typical time of what follows the data.
#
# A script has no list of objects, and its indexes and keys follow the data in a few lines: the share of the file is the
# share of the data, not of the whole.

MIN_RUNS = 2
MIN_SHARE = 0.05
"""Share of the file below which the rate is not used."""
MAX_PCT = 99.0


class ScriptProgress(NamedTuple):
    """Percentage of the whole job, and remaining seconds."""

    pct: float
    eta_s: float | None


def estimate_script_progress(
    read: float, elapsed_s: float, read_at_s: float | None, runs: Sequence[JobRun]
) -> ScriptProgress | None:
    """Estimate the progress of a script of which a share (0 to 1) is read; None without past runs.

    `read_at_s`: seconds after the start at which all of it had been read.

    >>> before = [JobRun(0, 1000.0, True, phases=(RunPhase("data", 600.0, 600.0),))] * 2
    >>> estimate_script_progress(0.5, 300.0, None, before), estimate_script_progress(1.0, 800.0, 600.0, before)
    (ScriptProgress(pct=30.0, eta_s=700.0), ScriptProgress(pct=80.0, eta_s=200.0))
    """
    known = [(_data_s(run), run.seconds) for run in runs if _data_s(run) > 0 and run.seconds > 0]
    if len(known) < MIN_RUNS:
        return None
    data_share = min(1.0, median(data / whole for data, whole in known))
    after = median(max(0.0, whole - data) / data for data, whole in known)
    if read_at_s is None:
        eta_s = None
        if read >= MIN_SHARE:
            data_s = elapsed_s / read
            eta_s = data_s - elapsed_s + after * data_s
        return ScriptProgress(min(MAX_PCT, 100.0 * data_share * read), eta_s)
    after_s = after * read_at_s
    passed_s = elapsed_s - read_at_s
    done = min(1.0, passed_s / after_s) if after_s > 0 else 1.0
    eta_s = after_s - passed_s if passed_s < after_s else None
    return ScriptProgress(min(MAX_PCT, 100.0 * (data_share + (1.0 - data_share) * done)), eta_s)


def _data_s(run: JobRun) -> float:
    return next((phase.wall_s for phase in run.phases if phase.name == "data"), 0.0)


COMPARABLE_FACTOR = 4.0
"""Runs of up to this multiple or fraction of the size are comparable."""
START_TOLERANCE_US = 2_000_000
RECENT_RUNS = 5
"""Number of last runs whose medians are used; older ones are not representative."""


class JobEstimator:
    """Estimates one job; remembers its percentage so that it never decreases. Not thread-safe."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self._memory = ForecastState()
        self._read_at_s: float | None = None

    def estimate(self, ledger: ObjectProgress, observed: ObservedProgram, runs: Sequence[JobRun]) -> ProgressForecast:
        """Estimate at this scan; `runs` are the past runs, oldest first. `notes` have also why there is no ETA."""
        self._memory.pct = max(self._memory.pct, _last_reported_pct(self._program, observed.request.shares))
        before = median_phases(runs)
        result = forecast(ledger, observed.request.wall_us, previous=before, state=self._memory)
        if self._program.kind == "psql":
            return self._estimate_script(observed, runs, result.phases)
        why = () if result.reason is None else (f"ETA unknown: {result.reason}",)
        return structs.replace(result, notes=(*why, *result.notes))

    def _estimate_script(
        self, observed: ObservedProgram, runs: Sequence[JobRun], phases: tuple[PhaseForecast, ...]
    ) -> ProgressForecast:
        """Estimate a script by its file, and what follows the data by past runs."""
        size = sum(one.total for one in observed.flow.inputs)
        if not size:
            return self._without_eta(phases, "progress unknown: psql does not read from a file with a known size")
        read = min(1.0, sum(one.bytes_read for one in observed.flow.inputs) / size)
        if read >= 1.0 and self._read_at_s is None:
            self._read_at_s = observed.running_s
        share = estimate_script_progress(read, observed.running_s, self._read_at_s, runs)
        if share is None:
            return self._without_eta(
                phases, "ETA unknown: a script does not show which indexes and keys follow its data"
            )
        self._memory.pct = max(self._memory.pct, share.pct)
        why = () if share.eta_s is not None else ("it takes longer than past runs, or has just started",)
        eta_grade = "unknown" if share.eta_s is None else "history"
        return ProgressForecast(
            pct=self._memory.pct, grade="estimated", eta_s=share.eta_s, eta_grade=eta_grade, phases=phases, notes=why
        )

    def _without_eta(self, phases: tuple[PhaseForecast, ...], why: str) -> ProgressForecast:
        pct = self._memory.pct or None
        grade = "unknown" if pct is None else "estimated"
        return ProgressForecast(pct=pct, grade=grade, eta_s=None, eta_grade="unknown", phases=phases, notes=(why,))


def comparable_runs(runs: Sequence[JobRun], size_bytes: float | None, format: str | None = None) -> list[JobRun]:
    """Return the runs of a similar size; others are of another archive, or before the database grew. Those of another
    format only if there is none of this one.

    >>> [run.size_bytes
    ...  for run in comparable_runs([JobRun(0, 9.0, True, size_bytes=size) for size in (10, 900, None)], 800)]
    [900, None]
    >>> two = [JobRun(0, 9.0, True, format=one) for one in ("custom", "plain")]
    >>> [run.format for run in comparable_runs(two, 1, "plain")]
    ['plain']
    """
    same = [run for run in runs if format is not None and run.format == format]
    return [
        run
        for run in same or runs
        if not size_bytes
        or not run.size_bytes
        or 1 / COMPARABLE_FACTOR <= run.size_bytes / size_bytes <= COMPARABLE_FACTOR
    ]


def median_phases(runs: Sequence[JobRun]) -> PreviousRun | None:
    """Return the median durations of the last runs, by phase; None without runs.

    >>> median_phases([JobRun(0, 60.0, True), JobRun(0, 70.0, True)]).wall_s
    65.0
    """
    recent = runs[-RECENT_RUNS:]
    if not recent:
        return None
    phases = []
    for name in dict.fromkeys(phase.name for run in recent for phase in run.phases):
        same = [phase for run in recent for phase in run.phases if phase.name == name]
        weights = [phase.bytes for phase in same if phase.bytes is not None]
        phases.append(
            RunPhase(
                name=name,
                wall_s=median(phase.wall_s for phase in same),
                busy_s=median(phase.busy_s for phase in same),
                bytes=int(median(weights)) if weights else None,
            )
        )
    wall_s = median(run.seconds for run in recent)
    return PreviousRun(wall_s=wall_s, phases=tuple(phases), longest=_median_objects(recent))


def _median_objects(runs: Sequence[JobRun]) -> dict[tuple[str, str], RunObject]:
    """Return the objects that took longest, each with the median of its durations."""
    same: dict[tuple[str, str], list[RunObject]] = {}
    for run in runs:
        for one in run.longest:
            same.setdefault((one.what, one.name), []).append(one)
    return {
        key: structs.replace(found[-1], seconds=median(one.seconds for one in found)) for key, found in same.items()
    }


def _last_reported_pct(program: RunningProgram, shares: Iterable[ReportedProgress]) -> float:
    """Return the percentage last reported of this program, by an earlier observer or agent."""
    # Start times have a resolution of 10 ms, and the clock may be adjusted.
    reported = (
        min(MAX_PCT, one.pct)
        for one in shares
        if (one.kind, one.process) == (program.kind, program.pid)
        and abs(one.started_us - program.started_us) < START_TOLERANCE_US
    )
    return max(reported, default=0.0)


# The disk a job writes to: free space, growth, and the space still needed.


class DiskSpace(NamedTuple):
    """A file system with the space available to unprivileged users."""

    mount: str
    free_bytes: int


def read_disk_space(path: str) -> DiskSpace | None:
    """Return the space at a path, or at its nearest existing parent directory; None if unknown."""
    at = path
    while not os.path.lexists(at) and at not in ("", "/"):
        at = os.path.dirname(at)
    try:
        device, usage = os.stat(at).st_dev, psutil.disk_usage(at)
    except OSError:
        return None
    return DiskSpace(_mount_point(at, device), usage.free)


def database_directory(server: Server, database: str | None) -> str | None:
    """Return the directory of a database's default tablespace; None if unknown: the database is newer than the last
    reading of the server."""
    if server.data_directory is None or not server.tablespaces:
        return server.data_directory
    found = next((one for one in server.databases if one.name == database), None)
    if found is None:
        return None
    if found.tablespace is None:
        return server.data_directory
    location = server.tablespaces.get(found.tablespace)
    # An in-place tablespace has a path relative to the data directory.
    return None if location is None else os.path.join(server.data_directory, location)


def _mount_point(path: str, device: int) -> str:
    at = os.path.realpath(path)
    while at != "/":
        above = os.path.dirname(at)
        try:
            if os.stat(above).st_dev != device:
                return at
        except OSError:
            return at
        at = above
    return "/"


MIN_SHARE_DONE = 0.05
"""Share of the work below which the bytes written are not extrapolated."""


def estimate_dump_bytes(
    written: int | None, done: float | None, total: float | None, ratio: float | None
) -> float | None:
    """Estimate the bytes a dump will still write: by its ratio of written to dumped bytes so far, else by that of past
    runs (`ratio`); None if both are unknown.

    >>> (estimate_dump_bytes(10, 100.0, 1000.0, None), estimate_dump_bytes(None, 0.0, 1000.0, 0.2),
    ...  estimate_dump_bytes(5, 1.0, 1000.0, None))
    (90.0, 200.0, None)
    """
    if total is None or done is None:
        return None
    if written and done >= MIN_SHARE_DONE * total > 0:
        return max(0.0, written / done * (total - done))
    return None if ratio is None else max(0.0, ratio * total - (written or 0))


_SIZE_OF_INDEX = {"INDEX": 0.3, "CONSTRAINT": 0.15}
"""Bytes of an index as a share of its table's."""


def written_pct(ledger: ObjectProgress) -> float | None:
    """Return the percentage of a restore's bytes on disk that are written: tables, and their indexes by their tables'
    size; None without known sizes. Its time does not measure it: keys take time and write nothing."""
    data = ledger.sums("data")
    if not data.weight or data.unknown_weight:
        return None
    running = sum((item.share or 0.0) * (item.entry.weight or 0.0) for item in ledger.running_objects)
    done, total = data.weight_done + running, data.weight
    for kind, sums in ledger.classes.items():
        share = _SIZE_OF_INDEX.get(kind.partition(" ")[0], 0.0) if sums.phase == "indexes" else 0.0
        done, total = done + share * sums.weight_done, total + share * sums.weight
    return min(100.0, 100.0 * done / total)


class RestoreConsumption:
    """Extrapolates the space a restore needs from its growth so far."""

    LEAST_PCT = 10.0
    """Progress that must be observed first."""

    def __init__(self) -> None:
        self._from: tuple[float, int] | None = None

    def remaining_bytes(self, pct: float | None, size: int) -> float | None:
        """Return the bytes still needed; None if too little was observed. `size` is that of the database, or the
        negative free space of its disk, which includes writes of others.
        """
        if pct is None:
            return None
        if self._from is None:
            self._from = pct, size
        before_pct, before = self._from
        taken = size - before
        if pct - before_pct < self.LEAST_PCT or taken <= 0:
            return None  # others freed space meanwhile
        return taken * (100.0 - pct) / (pct - before_pct)


class GrowthRate:
    """The growth rate over the last minute; restarts if the value shrinks."""

    WINDOW_US = 60_000_000
    SPAN_US = 5_000_000
    """Minimum time for a rate."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []

    def add(self, mono_us: int, amount: int) -> None:
        """Add the current amount."""
        if self._points and amount < self._points[-1][1]:
            self._points.clear()
        self._points = [one for one in self._points if mono_us - one[0] <= self.WINDOW_US]
        self._points.append((mono_us, amount))

    @property
    def per_s(self) -> float | None:
        """The rate over the last minute; None before five seconds are observed."""
        return average_rate(self._points, self.SPAN_US)


def average_rate(seen: Sequence[tuple[int, int]], span_us: int) -> float | None:
    """Return the rate per second from the first to the last (time, amount).

    >>> average_rate([(0, 0), (10_000_000, 50)], 5_000_000), average_rate([(0, 0), (1_000_000, 50)], 5_000_000)
    (5.0, None)
    """
    if len(seen) < 2 or seen[-1][0] - seen[0][0] < span_us:
        return None
    return (seen[-1][1] - seen[0][1]) / ((seen[-1][0] - seen[0][0]) / 1e6)


# The space a restore still needs: by the growth of its database, else by the decrease of free space on the disk.

QUERY_DEADLINE_US = 2_000_000
"""A scan that has taken this long sends no query: the server may not answer it either."""
DISK_ESTIMATE_NOTE = (
    "the space it still needs is estimated from the decrease of free space, which includes writes by other processes"
)


class RestoreSpaceEstimate:
    """Estimates the space a restore still needs. Waits for the server: only in a lane. Not thread-safe."""

    def __init__(self, conninfo: str, clock: Clock = SYSTEM) -> None:
        self._conninfo, self._clock = conninfo, clock
        self._catalog: CatalogReader | None = None
        self._by_database, self._by_disk = RestoreConsumption(), RestoreConsumption()
        self._need: float | None = None

    def estimate(
        self, database: str | None, pct: float | None, free_bytes: int, *, running_s: float, begun_us: int
    ) -> tuple[float | None, tuple[str, ...]]:
        """Return the bytes still needed, None if too little was observed; and a note if estimated by free space.

        `running_s`: how long the restore has run, `begun_us`: monotonic start time of this scan.
        """
        by_disk = self._by_disk.remaining_bytes(pct, -free_bytes)
        if database is not None and pct is not None and running_s >= QUERY_AFTER_S:
            answer = self._query_size(database, begun_us)
            if answer is not None:
                self._need = None if answer.bytes is None else self._by_database.remaining_bytes(pct, answer.bytes)
        if self._need is not None:
            return self._need, ()
        return by_disk, () if by_disk is None else (DISK_ESTIMATE_NOTE,)

    def _query_size(self, database: str, begun_us: int) -> CatalogAnswer | None:
        """Query the database's size, if due."""
        if self._catalog is None:
            self._catalog = CatalogReader(self._conninfo, database, size_only=True, clock=self._clock)
        late = self._clock.mono_us() - begun_us > QUERY_DEADLINE_US
        return None if late or not self._catalog.is_due else self._catalog.query()
