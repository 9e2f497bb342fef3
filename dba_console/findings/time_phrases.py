"""Moments in sentences: when something was, and when something will be, as one says it at a console.

Local time, as on the screen; a date where it is another day; nothing beyond a year, for no rate is told that far.
"""

from __future__ import annotations

from datetime import datetime

from dba_console.units import human_duration

YEAR_S = 365 * 86_400.0
_HOUR_S = 3600.0
_DAY_S = 86_400.0


def past_time_text(wall_us: int, now_us: int) -> str:
    """`at 14:53:07` on the day of `now_us`, else `on Nov 18 14:53`, with the year where it is another."""
    moment, now = datetime.fromtimestamp(wall_us / 1e6), datetime.fromtimestamp(now_us / 1e6)
    if moment.date() == now.date():
        return f"at {moment:%H:%M:%S}"
    if moment.year == now.year:
        return f"on {moment:%b} {moment.day} {moment:%H:%M}"
    return f"on {moment:%Y-%m-%d}"


def future_time_text(seconds: float, now_us: int) -> str:
    """`now`, `in 3m20s`, `in 5h10, at 19:40`, `in 41d, on Dec 31`; from a year on that it is not within one."""
    if seconds <= 0:
        return "now"
    if seconds >= YEAR_S:
        return "not within a year"
    text = f"in {human_duration(seconds)}"
    if seconds < _HOUR_S:
        return text
    moment, now = datetime.fromtimestamp(now_us / 1e6 + seconds), datetime.fromtimestamp(now_us / 1e6)
    if moment.date() == now.date():
        return f"{text}, at {moment:%H:%M}"
    if seconds < 7 * _DAY_S:
        return f"{text}, on {moment:%b} {moment.day} {moment:%H:%M}"
    return f"{text}, on {moment:%b} {moment.day}" + (f" {moment.year}" if moment.year != now.year else "")
