"""The trend of a job and the day it no longer fits its window, in words: never surer than the runs allow."""

from __future__ import annotations

from dba_console.frames.window_forecast import MAX_HORIZON_FACTOR, MIN_DAYS, MIN_RUNS, DurationTrend, WindowForecast
from dba_console.panels.times import day
from dba_console.units import UNKNOWN, human_duration


def trend_words(trend: DurationTrend) -> str:
    """In a cell: `+1m04s a day`, `steady`, `?` where the runs are too few."""
    if trend.verdict == "few" or trend.per_day_s is None:
        return UNKNOWN
    return "steady" if trend.verdict == "steady" else f"{_signed(trend.per_day_s)} a day"


def fits_words(found: WindowForecast) -> str:
    """In a cell: whether, and until when, it fits its window."""
    if found.window_s is None:
        return "no window"
    if found.trend.verdict == "few":
        return f"{found.over} too long" if found.over else UNKNOWN
    if found.beyond:
        return "no longer"
    if found.day_us is not None:
        return f"until ≈{day(found.day_us)}"
    return "yes"


def sentences(found: WindowForecast) -> list[str]:
    """What is known of it, a sentence each: the trend with how sure it is, then the window."""
    return [_trend(found.trend), *_window(found)]


def _trend(trend: DurationTrend) -> str:
    if not trend.runs:
        return "Its trend is not known: no run of it is known that did its work."
    asked = f"{_runs(trend.runs)} over {_days(trend.days)}"
    if trend.verdict == "few" or trend.per_day_s is None or trend.low_s is None or trend.high_s is None:
        return f"Its trend is not known: {asked} tell nothing, it takes {MIN_RUNS} over {MIN_DAYS:.0f} days."
    between = f"between {_signed(trend.low_s)} and {_signed(trend.high_s)}, nine times in ten; {asked}"
    now = f"now {human_duration(trend.now_s)}, give or take {human_duration(trend.spread_s)}"
    match trend.verdict:
        case "grows":
            return f"It takes {human_duration(trend.per_day_s)} longer each day ({between}): {now}."
        case "shrinks":
            return f"It takes {human_duration(-trend.per_day_s)} less each day ({between}): {now}."
        case _:
            return f"It neither grows nor shrinks clearly ({_signed(trend.per_day_s)} a day, {between}): {now}."


def _window(found: WindowForecast) -> list[str]:
    if found.window_s is None:
        return ["It has no window: [jobs] window in the configuration, or --window, says how long it may take."]
    window = f"its window of {human_duration(found.window_s)}"
    told: list[str] = []
    if found.over:
        told.append(f"{found.over} of these {_runs(found.trend.runs)} took longer than {window}.")
    if found.trend.verdict == "few":
        return [*told, f"When it no longer fits {window} is not known."]
    if found.beyond:
        return [*told, f"By its trend it does not fit {window} any more."]
    if found.day_us is not None and found.earliest_us is not None and found.latest_us is not None:
        between = f"between {day(found.earliest_us)} and {day(found.latest_us)}"
        return [*told, f"If that goes on, it no longer fits {window} from about {day(found.day_us)} on, {between}."]
    if found.too_far:
        days = _days(MAX_HORIZON_FACTOR * found.trend.days)
        return [*told, f"It fits {window} for more than {days}; further than that these runs do not tell."]
    return [*told, f"It fits {window}, and its trend does not change that."]


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "−") + human_duration(abs(seconds))


def _days(days: float) -> str:
    return "1 day" if round(days) == 1 else f"{days:.0f} days"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
