"""The trend of a job and the day it no longer fits its window, in words: never surer than the runs allow."""

from __future__ import annotations

from dba_console.frames.window_forecast import MAX_HORIZON_FACTOR, MIN_DAYS, MIN_RUNS, DurationTrend, WindowForecast
from dba_console.panels.time_formats import date_text
from dba_console.units import UNKNOWN, human_duration


def trend_text(trend: DurationTrend) -> str:
    """In a cell: `+1m04s a day`, `steady`, `?` where the runs are too few."""
    if trend.verdict == "few" or trend.per_day_s is None:
        return UNKNOWN
    return "steady" if trend.verdict == "steady" else f"{_signed_duration(trend.per_day_s)} a day"


def fits_text(found: WindowForecast) -> str:
    """In a cell: whether, and until when, it fits its window."""
    if found.window_s is None:
        return "no window"
    if found.trend.verdict == "few":
        return f"{found.over} too long" if found.over else UNKNOWN
    if found.beyond:
        return "no longer"
    if found.day_us is not None:
        return f"until ≈{date_text(found.day_us)}"
    return "yes"


def forecast_sentences(found: WindowForecast) -> list[str]:
    """What is known of it, a sentence each: the trend with how sure it is, then the window."""
    return [_trend_sentence(found.trend), *_window_sentences(found)]


def _trend_sentence(trend: DurationTrend) -> str:
    if not trend.runs:
        return "Its trend is not known: no run of it is known that did its work."
    basis = f"{_runs_text(trend.runs)} over {_days_text(trend.days)}"
    if trend.verdict == "few" or trend.per_day_s is None or trend.low_s is None or trend.high_s is None:
        return f"Its trend is not known: {basis} tell nothing, it takes {MIN_RUNS} over {MIN_DAYS:.0f} days."
    between = (
        f"between {_signed_duration(trend.low_s)} and {_signed_duration(trend.high_s)}, nine times in ten; {basis}"
    )
    now = f"now {human_duration(trend.now_s)}, give or take {human_duration(trend.spread_s)}"
    match trend.verdict:
        case "grows":
            return f"It takes {human_duration(trend.per_day_s)} longer each day ({between}): {now}."
        case "shrinks":
            return f"It takes {human_duration(-trend.per_day_s)} less each day ({between}): {now}."
        case _:
            return (
                f"It neither grows nor shrinks clearly ({_signed_duration(trend.per_day_s)} a day, {between}): {now}."
            )


def _window_sentences(found: WindowForecast) -> list[str]:
    if found.window_s is None:
        return ["It has no window: [jobs] window in the configuration, or --window, says how long it may take."]
    window = f"its window of {human_duration(found.window_s)}"
    parts: list[str] = []
    if found.over:
        parts.append(f"{found.over} of these {_runs_text(found.trend.runs)} took longer than {window}.")
    if found.trend.verdict == "few":
        return [*parts, f"When it no longer fits {window} is not known."]
    if found.beyond:
        return [*parts, f"By its trend it does not fit {window} any more."]
    if found.day_us is not None and found.earliest_us is not None and found.latest_us is not None:
        between = f"between {date_text(found.earliest_us)} and {date_text(found.latest_us)}"
        return [
            *parts,
            f"If that goes on, it no longer fits {window} from about {date_text(found.day_us)} on, {between}.",
        ]
    if found.too_far:
        days = _days_text(MAX_HORIZON_FACTOR * found.trend.days)
        return [*parts, f"It fits {window} for more than {days}; further than that these runs do not tell."]
    return [*parts, f"It fits {window}, and its trend does not change that."]


def _signed_duration(seconds: float) -> str:
    return ("+" if seconds >= 0 else "−") + human_duration(abs(seconds))


def _days_text(days: float) -> str:
    return "1 day" if round(days) == 1 else f"{days:.0f} days"


def _runs_text(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
