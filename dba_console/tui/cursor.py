"""Where on the time axis the screen stands. Pure: keys and ticks in, the next cursor out.

One cursor serves live, paused and replayed screens: what differs is only whether there is a present to return to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dba_console.panels.times import moment

Mode = Literal["live", "paused", "playing"]

SPEEDS = (1, 2, 4, 16, 64)
"""Times real time."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in time.

    `at_us` is the wall time shown, None while live or before anything is known. `moved` is True once the operator
    travelled since pausing: `space` then plays on from there instead of jumping back to the present.
    """

    has_present: bool
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


def start(*, has_present: bool) -> Cursor:
    """Live where there is a present, else paused at the start of the recording."""
    return Cursor(has_present, "live" if has_present else "paused")


def toggled(cursor: Cursor, now_us: int | None) -> Cursor:
    """`space`: hold the moment, or go on.

    >>> held = toggled(start(has_present=True), 5_000_000)
    >>> held.mode, toggled(held, 9_000_000).mode, toggled(moved_to(held, 4_000_000), 9_000_000).mode
    ('paused', 'live', 'playing')
    """
    if cursor.live:
        return replace(cursor, mode="paused", at_us=now_us, moved=False) if now_us is not None else cursor
    if cursor.playing:
        return replace(cursor, mode="paused", moved=True)
    if cursor.has_present and not cursor.moved:
        return to_live(cursor)
    return replace(cursor, mode="playing")


def moved_to(cursor: Cursor, at_us: int) -> Cursor:
    """At another moment; what was live is paused there, what was playing plays on from there."""
    return replace(cursor, mode="paused" if cursor.live else cursor.mode, at_us=at_us, moved=True)


def to_live(cursor: Cursor) -> Cursor:
    """Back to the present; without one, the cursor stays as it is."""
    return Cursor(has_present=True) if cursor.has_present else cursor


def faster(cursor: Cursor) -> Cursor:
    """`+`: plays, then faster. While live there is nothing to hurry to."""
    if cursor.live:
        return cursor
    if not cursor.playing:
        return replace(cursor, mode="playing", speed=1)
    return replace(cursor, speed=next((speed for speed in SPEEDS if speed > cursor.speed), SPEEDS[-1]))


def slower(cursor: Cursor) -> Cursor:
    """`-`: slower, and paused below ×1."""
    if not cursor.playing:
        return cursor
    lower = [speed for speed in SPEEDS if speed < cursor.speed]
    return replace(cursor, speed=lower[-1]) if lower else replace(cursor, mode="paused", moved=True)


def advanced(cursor: Cursor, elapsed_us: int) -> int | None:
    """The moment playing has come to after `elapsed_us` microseconds of the operator's time; None when not playing."""
    if not cursor.playing or cursor.at_us is None:
        return None
    return cursor.at_us + elapsed_us * cursor.speed


def label(cursor: Cursor, now_us: int | None) -> str:
    """The word in the header: `LIVE`, `PAUSED -00:42`, `REPLAY 2026-11-19 14:53:07 ×4`, in local time."""
    if cursor.live:
        return "LIVE"
    if cursor.has_present and not cursor.playing:
        return f"PAUSED {behind(cursor.at_us, now_us)}".rstrip()
    if cursor.at_us is None:
        return "REPLAY"
    return f"REPLAY {moment(cursor.at_us)} " + (f"×{cursor.speed}" if cursor.playing else "paused")


def behind(at_us: int | None, now_us: int | None) -> str:
    """How far back: `-00:42`, `-1:02:03`; empty where not known.

    >>> behind(1_000_000, 43_000_000), behind(0, 3_723_000_000)
    ('-00:42', '-1:02:03')
    """
    if at_us is None or now_us is None:
        return ""
    seconds = max(0, round((now_us - at_us) / 1e6))
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"-{hours}:{minutes:02d}:{seconds:02d}" if hours else f"-{minutes:02d}:{seconds:02d}"
