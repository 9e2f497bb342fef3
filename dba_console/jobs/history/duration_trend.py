"""Past dumps and restores of one target, the trend of their durations, and when a job exceeds its time window.

Read from the file of the agents; an unknown value of a run is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import median
from typing import Literal, NamedTuple

from msgspec import Struct

from dba_console.core.config import JobsConfig
from dba_console.core.units import parse_duration
from dba_console.jobs.history.run_statistics import JobRun
from dba_console.watch.job_sessions import job_name


class PastRun(JobRun, kw_only=True, frozen=True):
    """One past run, for display."""

    unbroken: bool = True
    counts: bool = True
    """Included in the typical duration; False for one cancelled at once."""
    exit_tells: bool = True
    """An exit status of 0 means success; not for psql, which continues after errors."""

    @property
    def ending(self) -> str:
        """`good`, `failed`, or `unknown`: an end alone does not mean success.

        Errors that a program ignored are errors, whatever its exit status.
        """
        if self.errors or self.exit or self.whole is False:
            return "failed"
        return "good" if self.whole or (self.exit == 0 and (self.exit_tells or self.errors == 0)) else "unknown"


class PastRuns(Struct, frozen=True, kw_only=True):
    """All runs of one job, oldest first."""

    kind: str
    database: str | None
    """None for a base backup, which contains all databases."""
    user: str | None
    runs: tuple[PastRun, ...] = ()
    usual_s: float | None = None
    watched_since_us: int | None = None
    """Since then no run can have been missed."""
    format: str | None = None
    """Of a dump that is made in several formats."""

    @property
    def name(self) -> str:
        """`pg_dump of appdb`: the name in the configuration."""
        return job_name(self.kind, self.database)

    @property
    def title(self) -> str:
        """`pg_dump of appdb (custom)`: the name in messages."""
        return job_name(self.kind, self.database, self.format)


class TargetJobHistory(Struct, frozen=True, kw_only=True):
    """All past jobs of one target."""

    jobs: tuple[PastRuns, ...] = ()
    until_us: int | None = None
    """Time of the last update."""
    note: str | None = None
    """Why nothing is known, or only a part."""


# Window forecast: when a job will exceed its window, from the trend of its runs over days and weeks. Pure.
#
# The trend is the median of the slopes between all pairs of runs (Theil 1950, Sen 1968): one run that hung, or a fast
# one, does not move it. Its confidence interval comes from the spread of the same slopes (Sen's interval, 90 %), so no
# distribution is assumed. Only runs that did not fail and have the format and jobs of the newest one are used, for
# another `-j` is a step and not a trend. With too few runs or days the verdict is `few`.

MIN_RUNS = 8
"""Minimum runs for a trend: below eight the interval contains all slopes."""
MIN_DAYS = 6.0
"""Minimum days for a trend: a week of nights; within hours a change is chance."""
MAX_HORIZON_FACTOR = 5.0
"""Nothing is predicted further ahead than this many times the observed days."""
_Z90 = 1.645
"""Quantile of the normal distribution for a 90 % interval (Hollander and Wolfe, section 9.3)."""
_DAY_US = 86_400_000_000

TrendVerdict = Literal["few", "steady", "shrinks", "grows"]


class DurationTrend(NamedTuple):
    """The trend of the durations of a job."""

    verdict: TrendVerdict
    """`steady`: within the spread of its runs it may shrink or grow."""
    runs: int
    """Runs used."""
    days: float
    """From the first of them to the last."""
    per_day_s: float | None = None
    """Growth in seconds per day; None with `few`."""
    low_s: float | None = None
    high_s: float | None = None
    """The 90 % interval of the slope."""
    now_s: float | None = None
    """Duration by the trend at the time of the last run."""
    spread_s: float | None = None
    """Median distance of the runs from the trend."""
    last_us: int | None = None


class WindowForecast(NamedTuple):
    """The trend compared with a window. Days are host wall times."""

    trend: DurationTrend
    window_s: float | None
    over: int = 0
    """Number of the runs used that took longer than the window."""
    beyond: bool = False
    """By the trend it already exceeds the window."""
    day_us: int | None = None
    """The day on which it will exceed the window; None if unknown or too far ahead."""
    earliest_us: int | None = None
    latest_us: int | None = None
    """None: perhaps never."""
    too_far: bool = False
    """It grows, but that day is further ahead than these runs can predict."""


class JobWindows(NamedTuple):
    """Time windows of jobs, seconds, as configured; None if not configured."""

    default_s: float | None = None
    named: Mapping[str, float] = {}
    """By the name of the job, `pg_dump of appdb`."""

    def for_job(self, job: PastRuns) -> float | None:
        """Return the window of that job, None if it has none."""
        return self.for_name(job.name)

    def for_name(self, name: str) -> float | None:
        """Return the window of the job of that name, as `job_name` formats it."""
        return self.named.get(name, self.default_s)


NO_WINDOWS = JobWindows()


def windows_of(config: JobsConfig, window: str | None = None) -> JobWindows:
    """Return the configured windows; `window` replaces the one for all jobs. Raises UsageError for an invalid duration.

    >>> windows_of(JobsConfig(window="8h", windows={"pg_dump of app": "90m"}))
    JobWindows(default_s=28800.0, named={'pg_dump of app': 5400.0})
    """
    default = window if window is not None else config.window
    named = {name: parse_duration(text) for name, text in config.windows.items()}
    return JobWindows(None if default is None else parse_duration(default), named)


def comparable_runs(runs: Sequence[PastRun]) -> list[PastRun]:
    """Return the runs the trend uses: those that did not fail, with the format and jobs of the newest."""
    good = [run for run in runs if run.counts and run.ending != "failed"]
    if not good:
        return []
    last = good[-1]
    return [run for run in good if _same(run.format, last.format) and _same(run.jobs, last.jobs)]


def _same(one: object, other: object) -> bool:
    """Treat an unknown value as equal: otherwise a run that was not observed would exclude all before it."""
    return one is None or other is None or one == other


def duration_trend(runs: Sequence[PastRun]) -> DurationTrend:
    """Return the trend of the durations of these runs, oldest first."""
    used = comparable_runs(runs)
    if not used:
        return DurationTrend("few", 0, 0.0)
    points = [((run.started_us - used[0].started_us) / _DAY_US, run.seconds) for run in used]
    days = points[-1][0] - points[0][0]
    if len(used) < MIN_RUNS or days < MIN_DAYS:
        return DurationTrend("few", len(used), max(0.0, days), last_us=used[-1].started_us)
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(points)
        for later in points[place + 1 :]
        if later[0] > earlier[0]
    )
    if not slopes:  # the clock stood still
        return DurationTrend("few", len(used), days, last_us=used[-1].started_us)
    per_day = median(slopes)
    low, high = _interval(slopes, len(points))
    level = median(seconds - per_day * day for day, seconds in points)
    spread = median(abs(seconds - level - per_day * day) for day, seconds in points)
    verdict: TrendVerdict = "grows" if low > 0 else "shrinks" if high < 0 else "steady"
    now_s = max(0.0, level + per_day * points[-1][0])
    return DurationTrend(verdict, len(used), days, per_day, low, high, now_s, spread, used[-1].started_us)


def _interval(slopes: Sequence[float], points: int) -> tuple[float, float]:
    """Return the 90 % interval of the slope; `slopes` are sorted."""
    reach = _Z90 * sqrt(points * (points - 1) * (2 * points + 5) / 18)
    most = len(slopes) - 1
    low = int((len(slopes) - reach) / 2)
    high = int((len(slopes) + reach) / 2 + 0.5)
    return slopes[min(max(low, 0), most)], slopes[min(max(high, 0), most)]


def forecast_window(runs: Sequence[PastRun], window_s: float | None) -> WindowForecast:
    """Return when the job will exceed `window_s`; without a window only its trend.

    >>> night = 86_400_000_000
    >>> runs = [PastRun(started_us=day * night, seconds=3600.0 + 60 * day) for day in range(20)]
    >>> found = forecast_window(runs, 2 * 3600.0)
    >>> found.trend.verdict, round(found.trend.per_day_s), (found.day_us - runs[-1].started_us) // night
    ('grows', 60, 41)
    >>> forecast_window(runs, 9 * 3600.0).too_far, forecast_window(runs[:5], 3600.0).trend.verdict
    (True, 'few')
    """
    trend = duration_trend(runs)
    if window_s is None:
        return WindowForecast(trend, None)
    over = sum(run.seconds > window_s for run in comparable_runs(runs))
    forecast = WindowForecast(trend, window_s, over)
    if trend.now_s is None or trend.last_us is None:
        return forecast
    if trend.now_s >= window_s:
        return forecast._replace(beyond=True)
    if trend.verdict != "grows" or not trend.per_day_s or not trend.low_s or not trend.high_s:
        return forecast
    margin_s = window_s - trend.now_s
    ahead_days = margin_s / trend.per_day_s
    if ahead_days > MAX_HORIZON_FACTOR * trend.days:
        return forecast._replace(too_far=True)
    # A run above the trend by the typical spread is the first that exceeds it; one below it the last that fits.
    spread_s = trend.spread_s or 0.0
    return forecast._replace(
        day_us=_after(trend.last_us, ahead_days),
        earliest_us=_after(trend.last_us, max(0.0, margin_s - spread_s) / trend.high_s),
        latest_us=_after(trend.last_us, (margin_s + spread_s) / trend.low_s),
    )


def _after(at_us: int, days: float) -> int:
    return at_us + int(min(days, 36_500.0) * _DAY_US)
