"""Dumps and restores that ended, as they are told: every run of every job known on one target.

Where they come from (the agent's file) is not known here; what is not known of a run is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import median
from typing import Literal, NamedTuple

from msgspec import Struct

from dba_console.core.config import JobsConfig
from dba_console.core.units import parse_duration
from dba_console.watch.frames.job_sessions import job_name


class PastPhase(Struct, frozen=True, kw_only=True):
    """One phase of a run that ended."""

    name: str
    wall_s: float | None = None
    """From its first object's start to its last one's end; phases overlap with -j."""
    busy_s: float | None = None
    """Of all its objects together."""
    bytes: float | None = None


class PastRun(Struct, frozen=True, kw_only=True):
    """One run that ended."""

    started_us: int
    """Host wall time."""
    seconds: float
    counts: bool = True
    """It takes part in what is usual: not one cancelled at once."""
    size_bytes: float | None = None
    """Of what was dumped or read."""
    bytes: float | None = None
    """Written by a dump, read by a restore."""
    rate_per_s: float | None = None
    """Bytes a second."""
    format: str | None = None
    version: str | None = None
    jobs: int | None = None
    exit: int | None = None
    """None: nobody saw it."""
    errors: int | None = None
    """None: its messages could not be read."""
    last_error: str | None = None
    phases: tuple[PastPhase, ...] = ()
    whole: bool | None = None
    """Whether it did all it set out to, as far as that was seen."""
    exit_tells: bool = True
    """An exit status of 0 means success; psql's does not, for it goes on after errors."""

    @property
    def ended_us(self) -> int:
        return self.started_us + int(self.seconds * 1e6)

    @property
    def ending(self) -> str:
        """`good`, `failed`, or `unknown`: to have ended is not to have succeeded.

        Errors that a program ignored are errors, whatever its exit status says.
        """
        if self.errors or self.exit or self.whole is False:
            return "failed"
        return "good" if self.whole or (self.exit == 0 and (self.exit_tells or self.errors == 0)) else "unknown"


class PastRuns(Struct, frozen=True, kw_only=True):
    """All runs of one job, oldest first."""

    kind: str
    database: str | None
    """None for a base backup, which is of all of them."""
    user: str | None
    runs: tuple[PastRun, ...] = ()
    usual_s: float | None = None
    watched_since_us: int | None = None
    """Since then no run can have gone unseen."""

    @property
    def name(self) -> str:
        """`pg_dump of appdb`: as sentences and the configuration name it."""
        return job_name(self.kind, self.database)


class TargetJobHistory(Struct, frozen=True, kw_only=True):
    """What is known of one target."""

    jobs: tuple[PastRuns, ...] = ()
    until_us: int | None = None
    """Until then it was kept up to date."""
    note: str | None = None
    """Why nothing is known, or not all of it."""


# When a job will no longer fit its window: the trend of its runs over days and weeks, and how sure that is. Pure.
#
# The trend is the median of the slopes between all pairs of runs (Theil 1950, Sen 1968): a night that hung, or one
# that was quick, does not move it. How sure it is comes from the spread of the same slopes (Sen's interval, 90 %), so
# no distribution is assumed. Only runs that did the work are asked, and only those made the way the newest one was,
# for another `-j` is a step and no trend. Few runs, or few days, tell nothing, and that is said.

MIN_RUNS = 8
"""With fewer runs there is no trend: below eight the interval of the slopes is all of them."""
MIN_DAYS = 6.0
"""A week of nights; in a few hours nothing grows but by chance."""
MAX_HORIZON_FACTOR = 5.0
"""Nothing is predicted further ahead than so many times the days that were watched."""
_Z90 = 1.645
"""Of the normal distribution, for an interval that holds nine times in ten (Hollander and Wolfe, section 9.3)."""
_DAY_US = 86_400_000_000

TrendVerdict = Literal["few", "steady", "shrinks", "grows"]


class DurationTrend(NamedTuple):
    """Where the duration of a job goes."""

    verdict: TrendVerdict
    """`steady`: within the spread of its runs it may as well shrink as grow."""
    runs: int
    """That were asked."""
    days: float
    """From the first of them to the last."""
    per_day_s: float | None = None
    """Seconds longer each day; None with `few`."""
    low_s: float | None = None
    high_s: float | None = None
    """Between these the slope lies, nine times in ten."""
    now_s: float | None = None
    """What the trend says a run takes at the time of the last one."""
    spread_s: float | None = None
    """Median distance of the runs from the trend."""
    last_us: int | None = None


class WindowForecast(NamedTuple):
    """The trend beside a window. Days are host wall times."""

    trend: DurationTrend
    window_s: float | None
    over: int = 0
    """Of the runs asked, those that took longer than the window."""
    beyond: bool = False
    """By the trend it does not fit any more."""
    day_us: int | None = None
    """The day on which it no longer fits; None where that is not known or not worth a word."""
    earliest_us: int | None = None
    latest_us: int | None = None
    """None: perhaps never."""
    too_far: bool = False
    """It grows, but that day is further ahead than these runs can tell."""


class JobWindows(NamedTuple):
    """How long jobs may take, seconds, as configured; nothing where nobody said."""

    default_s: float | None = None
    named: Mapping[str, float] = {}
    """By the name of the job, `pg_dump of appdb`."""

    def for_job(self, job: PastRuns) -> float | None:
        """The window of that job, None where it has none."""
        return self.for_name(job.name)

    def for_name(self, name: str) -> float | None:
        """The window of the job of that name, as `job_name` makes it."""
        return self.named.get(name, self.default_s)


NO_WINDOWS = JobWindows()


def windows_of(config: JobsConfig, window: str | None = None) -> JobWindows:
    """The windows as configured; `window` is meant in place of the one for all jobs. Raises UsageError for no duration.

    >>> windows_of(JobsConfig(window="8h", windows={"pg_dump of app": "90m"}))
    JobWindows(default_s=28800.0, named={'pg_dump of app': 5400.0})
    """
    default = window if window is not None else config.window
    named = {name: parse_duration(text) for name, text in config.windows.items()}
    return JobWindows(None if default is None else parse_duration(default), named)


def comparable_runs(runs: Sequence[PastRun]) -> list[PastRun]:
    """The runs that can be asked: those that did the work, made in the format and with the jobs of the newest."""
    good = [run for run in runs if run.counts and run.ending != "failed"]
    if not good:
        return []
    last = good[-1]
    return [run for run in good if _same(run.format, last.format) and _same(run.jobs, last.jobs)]


def _same(one: object, other: object) -> bool:
    """What is not known is taken for the same: otherwise a run nobody looked at would hide all before it."""
    return one is None or other is None or one == other


def duration_trend(runs: Sequence[PastRun]) -> DurationTrend:
    """The trend of the durations of these runs, oldest first."""
    asked = comparable_runs(runs)
    if not asked:
        return DurationTrend("few", 0, 0.0)
    points = [((run.started_us - asked[0].started_us) / _DAY_US, run.seconds) for run in asked]
    days = points[-1][0] - points[0][0]
    if len(asked) < MIN_RUNS or days < MIN_DAYS:
        return DurationTrend("few", len(asked), max(0.0, days), last_us=asked[-1].started_us)
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(points)
        for later in points[place + 1 :]
        if later[0] > earlier[0]
    )
    if not slopes:  # by a clock that stood still
        return DurationTrend("few", len(asked), days, last_us=asked[-1].started_us)
    per_day = median(slopes)
    low, high = _interval(slopes, len(points))
    level = median(seconds - per_day * day for day, seconds in points)
    spread = median(abs(seconds - level - per_day * day) for day, seconds in points)
    verdict: TrendVerdict = "grows" if low > 0 else "shrinks" if high < 0 else "steady"
    now_s = max(0.0, level + per_day * points[-1][0])
    return DurationTrend(verdict, len(asked), days, per_day, low, high, now_s, spread, asked[-1].started_us)


def _interval(slopes: Sequence[float], points: int) -> tuple[float, float]:
    """Between which slopes the true one lies nine times in ten; `slopes` are sorted."""
    reach = _Z90 * sqrt(points * (points - 1) * (2 * points + 5) / 18)
    most = len(slopes) - 1
    low = int((len(slopes) - reach) / 2)
    high = int((len(slopes) + reach) / 2 + 0.5)
    return slopes[min(max(low, 0), most)], slopes[min(max(high, 0), most)]


def forecast_window(runs: Sequence[PastRun], window_s: float | None) -> WindowForecast:
    """When the job no longer fits into `window_s`; without a window only its trend.

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
    room_s = window_s - trend.now_s
    ahead_days = room_s / trend.per_day_s
    if ahead_days > MAX_HORIZON_FACTOR * trend.days:
        return forecast._replace(too_far=True)
    # A run above the trend by the usual spread is the first that does not fit; one below it the last that does.
    spread_s = trend.spread_s or 0.0
    return forecast._replace(
        day_us=_after(trend.last_us, ahead_days),
        earliest_us=_after(trend.last_us, max(0.0, room_s - spread_s) / trend.high_s),
        latest_us=_after(trend.last_us, (room_s + spread_s) / trend.low_s),
    )


def _after(at_us: int, days: float) -> int:
    return at_us + int(min(days, 36_500.0) * _DAY_US)
