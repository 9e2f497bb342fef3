"""Estimate a job's percentage and ETA: from its objects, for a script from the file it reads, and from past runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from msgspec import structs

from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.progress_forecast import (
    ForecastState,
    PhaseForecast,
    PreviousPhase,
    PreviousRun,
    ProgressForecast,
    forecast,
)
from dba_console.jobs.following.running_programs import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram
from dba_console.jobs.history.job_history import ReportedProgress
from dba_console.jobs.history.past_runs import JobRun

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

    >>> from dba_console.jobs.history.past_runs import RunPhase
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
        why = () if result.reason is None else (_no_eta_text(result.reason),)
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


def comparable_runs(runs: Sequence[JobRun], size_bytes: float | None) -> list[JobRun]:
    """Return the runs of a similar size; others are of another archive, or before the database grew.

    >>> [run.size_bytes
    ...  for run in comparable_runs([JobRun(0, 9.0, True, size_bytes=size) for size in (10, 900, None)], 800)]
    [900, None]
    """
    return [
        run
        for run in runs
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
            PreviousPhase(
                name=name,
                wall_s=median(phase.wall_s for phase in same),
                busy_s=median(phase.busy_s for phase in same),
                bytes=median(weights) if weights else None,
            )
        )
    sizes = [run.size_bytes for run in recent if run.size_bytes is not None]
    wall_s = median(run.seconds for run in recent)
    return PreviousRun(wall_s=wall_s, phases=tuple(phases), bytes=median(sizes) if sizes else None)


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


def _no_eta_text(reason: str) -> str:
    return f"ETA unknown: {reason}"
