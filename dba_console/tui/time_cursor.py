"""The time cursor: which time the screen shows. Pure: keys and ticks in, the next cursor out.

The same for live, paused and replayed screens; they differ only in whether there is a live state to return to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dba_console.watch.drawing.time_formats import date_and_time

Mode = Literal["live", "paused", "playing"]

SPEEDS = (1, 2, 4, 16, 64)
"""Playback speeds, as multiples of real time."""


@dataclass(frozen=True, slots=True)
class TimeCursor:
    """A position in time.

    `at_us` is the wall-clock time shown, None while live or before anything is known. `moved` is True if the operator
    moved since pausing: `space` then plays on from there instead of returning to live.
    """

    can_go_live: bool
    mode: Mode = "live"
    at_us: int | None = None
    speed: int = 1
    moved: bool = False

    @property
    def live(self) -> bool:
        return self.mode == "live"

    @property
    def playing(self) -> bool:
        return self.mode == "playing"


def initial_cursor(*, can_go_live: bool) -> TimeCursor:
    """Live if possible, else paused at the start of the recording."""
    return TimeCursor(can_go_live, "live" if can_go_live else "paused")


def toggled(cursor: TimeCursor, now_us: int | None) -> TimeCursor:
    """`space`: pause, or continue.

    >>> held = toggled(initial_cursor(can_go_live=True), 5_000_000)
    >>> held.mode, toggled(held, 9_000_000).mode, toggled(moved_to(held, 4_000_000), 9_000_000).mode
    ('paused', 'live', 'playing')
    """
    if cursor.live:
        return replace(cursor, mode="paused", at_us=now_us, moved=False) if now_us is not None else cursor
    if cursor.playing:
        return replace(cursor, mode="paused", moved=True)
    if cursor.can_go_live and not cursor.moved:
        return to_live(cursor)
    return replace(cursor, mode="playing")


def moved_to(cursor: TimeCursor, at_us: int) -> TimeCursor:
    """Move to another time; live becomes paused there, playing continues from there."""
    return replace(cursor, mode="paused" if cursor.live else cursor.mode, at_us=at_us, moved=True)


def to_live(cursor: TimeCursor) -> TimeCursor:
    """Return to live; if that is not possible, the cursor stays as it is."""
    return TimeCursor(can_go_live=True) if cursor.can_go_live else cursor


def faster(cursor: TimeCursor) -> TimeCursor:
    """`+`: play, then faster. No effect while live."""
    if cursor.live:
        return cursor
    if not cursor.playing:
        return replace(cursor, mode="playing", speed=1)
    return replace(cursor, speed=next((speed for speed in SPEEDS if speed > cursor.speed), SPEEDS[-1]))


def slower(cursor: TimeCursor) -> TimeCursor:
    """`-`: slower; below ×1 paused."""
    if not cursor.playing:
        return cursor
    lower = [speed for speed in SPEEDS if speed < cursor.speed]
    return replace(cursor, speed=lower[-1]) if lower else replace(cursor, mode="paused", moved=True)


def playback_us(cursor: TimeCursor, elapsed_us: int) -> int | None:
    """Return the time that playing has reached after `elapsed_us` microseconds of real time; None if not playing."""
    if not cursor.playing or cursor.at_us is None:
        return None
    return cursor.at_us + elapsed_us * cursor.speed


def mode_label(cursor: TimeCursor, now_us: int | None) -> str:
    """Return the mode for the header: `LIVE`, `PAUSED -00:42`, `REPLAY 2026-11-19 14:53:07 ×4`, in local time."""
    if cursor.live:
        return "LIVE"
    if cursor.can_go_live and not cursor.playing:
        return f"PAUSED {lag_text(cursor.at_us, now_us)}".rstrip()
    if cursor.at_us is None:
        return "REPLAY"
    return f"REPLAY {date_and_time(cursor.at_us)} " + (f"×{cursor.speed}" if cursor.playing else "paused")


def lag_text(at_us: int | None, now_us: int | None) -> str:
    """Return the lag: `-00:42`, `-1:02:03`; empty if unknown.

    >>> lag_text(1_000_000, 43_000_000), lag_text(0, 3_723_000_000)
    ('-00:42', '-1:02:03')
    """
    if at_us is None or now_us is None:
        return ""
    seconds = max(0, round((now_us - at_us) / 1e6))
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"-{hours}:{minutes:02d}:{seconds:02d}" if hours else f"-{minutes:02d}:{seconds:02d}"
