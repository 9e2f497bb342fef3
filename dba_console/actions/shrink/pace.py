"""How much is cut off at a time, and how long nothing is done between two cuts: pure.

Freed space goes through the file system's journal, and with it everybody's commits: how long a commit takes beside a
cut is what others feel of it. That is compared with how long one takes in the pause between two cuts on the same file
system, so that a disk that is slow by itself, or by others' doing, is not mistaken for harm done. Up by small amounts,
down by half (AIMD), as a sender does on a network whose capacity nobody tells it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.units import human_bytes, human_pct

MIB = 1 << 20
REMEMBERED = 15
"""Commits in pauses that the quiet figure is the median of: a slow one changes nothing, a change of load soon does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the pace goes by."""

    first: int = 4 * MIB
    smallest: int = MIB
    largest: int = 1024 * MIB
    commit_ratio: float = 2.0
    """A commit beside a cut may take this many times one in a pause. Twice: it waits for one that is under way, as it
    may have to behind any other writer."""
    commit_floor_s: float = 0.002
    """Never asked to be quicker than this: on a disk that commits in 0.1 ms nobody feels 2 ms."""
    commit_limit_s: float = 0.1
    """Nor is more than this ever allowed, however slow the disk is by itself."""
    busy_share: float = 1 / 3
    """Of the time, what is spent cutting; the rest of it the disk belongs to the others."""
    longest_pause_s: float = 2.0
    trouble_s: float = 0.5
    """Commits in pauses that take this long are somebody else's trouble: nothing is added to it while it lasts."""
    stall_floor_pct: float = 30.0
    """Pressure (PSI io some) below this is ordinary on a database host."""
    await_floor_s: float = 0.02
    """A read or write of the device below this is ordinary, also on spinning disks."""
    coarse_ratio: float = 3.0
    """Pressure and waits of the device count from this many times what they were before the first cut."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What one cut was measured to be. Seconds; None where it was not measured this time."""

    step: int
    """Bytes cut off."""
    took_s: float
    """The cut with its commit."""
    quiet_s: float | None = None
    """A commit in the pause before it."""
    database_s: float | None = None
    """A commit of the database right after it."""
    database_quiet_s: float | None = None
    """The last one in a pause."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How to go on."""

    step: int
    pause_s: float
    quiet: tuple[float, ...] = ()
    """The last commits in pauses, oldest first."""
    probing: bool = True
    """Nothing has given reason to give way yet: grows by half, later by a little."""
    brake: float = 1.0
    """Pauses are made longer by this much."""
    reason: str = ""
    """Why it holds back; empty when it does not."""

    @property
    def quiet_s(self) -> float | None:
        """What a commit takes while nothing is cut."""
        return statistics.median(self.quiet) if self.quiet else None


def begin(baseline: tuple[float, ...], limits: Limits) -> Pace:
    """The pace of the first cut, after commits that were timed before it."""
    return Pace(min(limits.first, limits.largest), 0.0, baseline[-REMEMBERED:])


def limit_s(pace: Pace, limits: Limits) -> float:
    """How long a cut with its commit may take now."""
    quiet = pace.quiet_s or 0.0
    return min(limits.commit_limit_s, max(limits.commit_floor_s, limits.commit_ratio * quiet))


def after(pace: Pace, cut: Cut, limits: Limits) -> Pace:
    """The pace after a cut."""
    quiet = pace.quiet if cut.quiet_s is None else (*pace.quiet, cut.quiet_s)[-REMEMBERED:]
    pace = replace(pace, quiet=quiet)
    if reason := _harm(pace, cut, limits):
        return _slower(pace, cut, reason, limits)
    return _faster(pace, cut, limits)


def _harm(pace: Pace, cut: Cut, limits: Limits) -> str:
    """What this cut did to others, in words; empty where that is nothing, or not its own doing."""
    allowed = limit_s(pace, limits)
    by_itself = cut.quiet_s is not None and cut.quiet_s > allowed
    if cut.took_s > allowed and not by_itself:
        return f"a commit took {_ms(cut.took_s)} beside a cut, {_ms(pace.quiet_s)} without one"
    if cut.database_s is not None and cut.database_quiet_s is not None:
        allowed = min(limits.commit_limit_s, max(limits.commit_floor_s, limits.commit_ratio * cut.database_quiet_s))
        if cut.database_s > max(allowed, cut.database_quiet_s * limits.commit_ratio):
            return f"the database took {_ms(cut.database_s)} to commit, {_ms(cut.database_quiet_s)} without a cut"
    return ""


def _slower(pace: Pace, cut: Cut, reason: str, limits: Limits) -> Pace:
    step = max(limits.smallest, min(pace.step, cut.step) // 2)
    # At the smallest step only time is left to give.
    brake = min(pace.brake * 2, 64.0) if pace.step <= limits.smallest else pace.brake
    return replace(pace, step=step, pause_s=_pause(cut, brake, limits), brake=brake, probing=False, reason=reason)


def _faster(pace: Pace, cut: Cut, limits: Limits) -> Pace:
    """Grows only where there is room: nearer than two thirds to what is allowed it stays as it is."""
    step, brake = pace.step, max(1.0, pace.brake * 0.9)
    roomy = cut.took_s < limit_s(pace, limits) * 2 / 3
    # A last cut, or one of a hole's rim, says nothing about a whole step.
    if roomy and cut.step >= pace.step and brake == 1.0:
        step += pace.step // 2 if pace.probing else max(limits.smallest, pace.step // 16)
    step = min(step, limits.largest)
    reason = pace.reason if brake > 1.0 else ""
    return replace(pace, step=step, pause_s=_pause(cut, brake, limits), brake=brake, reason=reason)


def _pause(cut: Cut, brake: float, limits: Limits) -> float:
    return min(limits.longest_pause_s, cut.took_s * (1 / limits.busy_share - 1) * brake)


@dataclass(frozen=True, slots=True)
class Coarse:
    """What the host says over a second or two: pressure in percent, and what a request of the device waits, seconds."""

    stall_pct: float | None = None
    await_s: float | None = None


def lean_back(pace: Pace, usual: Coarse, last: Coarse, now: Coarse, limits: Limits) -> tuple[Pace, Coarse]:
    """The pace after a look at the host, and what counts as usual from now on.

    These figures do not tell whose doing they are. So pauses are doubled, and where the figure does not fall for that,
    it was not this deletion's: then it is what is usual here.
    """
    stall, pace = _lean(pace, usual.stall_pct, last.stall_pct, now.stall_pct, limits.stall_floor_pct, limits, _pressure)
    wait, pace = _lean(pace, usual.await_s, last.await_s, now.await_s, limits.await_floor_s, limits, _waits)
    return pace, Coarse(stall, wait)


def _lean(
    pace: Pace,
    usual: float | None,
    last: float | None,
    now: float | None,
    floor: float,
    limits: Limits,
    words: Callable[[float, float | None], str],
) -> tuple[float | None, Pace]:
    if now is None or now <= max(floor, limits.coarse_ratio * (usual or 0.0)):
        return usual, pace
    if pace.brake > 1.0 and last is not None and now > last * 0.8:
        return now, pace
    return usual, replace(pace, brake=min(pace.brake * 2, 64.0), reason=words(now, usual))


def _pressure(now: float, usual: float | None) -> str:
    return f"tasks wait for I/O {human_pct(now)} of the time, {human_pct(usual)} before it began"


def _waits(now: float, usual: float | None) -> str:
    return f"requests of the device take {_ms(now)}, {_ms(usual)} before it began"


def trouble(quiet_s: float | None, limits: Limits) -> str:
    """Why to wait before the next cut though nothing was cut just now; empty where there is no reason."""
    if quiet_s is None or quiet_s <= limits.trouble_s:
        return ""
    return f"commits take {_ms(quiet_s)} without any cut: it waits for that to pass"


def told(pace: Pace) -> str:
    """The pace in words."""
    steps = f"steps of {human_bytes(pace.step)}"
    return f"{steps}; holds back: {pace.reason}" if pace.reason else steps


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
