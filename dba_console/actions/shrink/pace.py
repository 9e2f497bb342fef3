"""How much is cut off at a time, and how long nothing is done between two cuts: pure.

Freed space goes through the file system's journal, and with it everybody's commits: how long a commit takes beside a
cut is what others feel of it. That is compared with how long one takes in the pause between two cuts on the same file
system, so that a disk that is slow by itself, or by others' doing, is not mistaken for harm done. Up by small amounts,
down by half (AIMD), as a sender does on a network whose capacity nobody tells it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dba_console.units import human_bytes, human_pct

MIB = 1 << 20
REMEMBERED = 15
"""Commits in pauses that the quiet figure is the median of: a slow one changes nothing, a change of load soon does."""

WITNESSES = 5
"""Cuts of the same step that are looked at together."""
HARDEST = 16.0
"""The brake at its hardest: a thirtieth of the time is spent cutting."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the pace goes by."""

    first: int = 4 * MIB
    smallest: int = 2 * MIB
    largest: int = 1024 * MIB
    commit_ratio: float = 3.0
    """A commit beside a cut may take this many times one in a pause. It waits for one that is under way, then for its
    own: that is twice, as behind any other writer, and leaves as much again for what the cut adds."""
    commit_floor_s: float = 0.004
    """Never asked to be quicker than this: half of what one turn of a spinning disk takes, and less than any disk with
    other work on it takes now and then."""
    drift: float = 3.0
    """What is quiet is learned anew all the time, but allows never more than this many times what it did before the
    first cut: else what the cutting does would by and by become what is usual."""
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
    own_s: float
    """The cut with its commit."""
    next_s: float
    """The commit after it: what a file system frees it gives back to the device (discard) after its own commit, so that
    the next one feels it."""
    busy_s: float
    """From its beginning until commits took no longer than usual."""
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
    baseline: tuple[float, ...] = ()
    """Commits before the first cut."""
    cuts: tuple[Cut, ...] = ()
    """Those of this step so far, oldest first."""
    probing: bool = True
    """Nothing has given reason to give way yet: grows by a third, later by a little."""
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
    return Pace(max(limits.smallest, min(limits.first, limits.largest)), 0.0, baseline[-REMEMBERED:], baseline)


def limit_s(pace: Pace, limits: Limits) -> float:
    """How long a commit beside a cut may take now."""
    allowed = _allowed(pace.quiet, limits)
    if pace.baseline:
        allowed = min(allowed, limits.drift * _allowed(pace.baseline, limits))
    return min(limits.commit_limit_s, max(limits.commit_floor_s, allowed))


def _allowed(quiet: Sequence[float], limits: Limits) -> float:
    """By commits that feel no cut: some times the middle one, and what every fifth of them takes by itself."""
    if not quiet:
        return 0.0
    return max(limits.commit_ratio * statistics.median(quiet), _fifth(quiet))


def _fifth(times: Sequence[float]) -> float:
    """What every fifth of them exceeds."""
    return sorted(times)[len(times) * 4 // 5]


def learned(pace: Pace, quiet_s: float) -> Pace:
    """The pace with one more commit timed at the end of a pause, whatever it took: a choice among them would make the
    quiet figure ever smaller."""
    return replace(pace, quiet=(*pace.quiet, quiet_s)[-REMEMBERED:])


def after(pace: Pace, cut: Cut, limits: Limits) -> Pace:
    """The pace after a cut.

    A slow commit by itself is chance, on a host with other work it happens all the time: what the middle one of some
    cuts of the same step feels is what the step costs. Only one that nobody could bear is answered at once.
    """
    if cut.step < pace.step * 9 // 10:  # the file's end or a hole's rim: says nothing about a whole step
        return pace
    pace = replace(pace, cuts=(*pace.cuts, cut))
    if max(cut.own_s, cut.next_s) > limits.commit_limit_s and pace.step > limits.smallest:
        return _slower(pace, f"a commit took {_ms(max(cut.own_s, cut.next_s))} beside a cut", limits, surely=False)
    if len(pace.cuts) < WITNESSES:
        return replace(pace, pause_s=_pause(pace, pace.brake, limits))
    if reason := _harm(pace, limits):
        return _slower(pace, reason, limits, surely=True)
    return _faster(pace, limits)


def _harm(pace: Pace, limits: Limits) -> str:
    """What the last cuts did to others, in words; empty where that is nothing, or not their own doing."""
    allowed, usually = limit_s(pace, limits), _usually(pace)
    if usually > allowed:
        return f"commits took {_ms(usually)} beside a cut, {_ms(pace.quiet_s)} without one"
    asked = [(cut.database_s, cut.database_quiet_s) for cut in pace.cuts]
    for took, quiet in asked:
        if took is not None and quiet is not None:
            allowed = max(limits.commit_floor_s, limits.commit_ratio * quiet)
            if took > allowed:
                return f"the database took {_ms(took)} to commit, {_ms(quiet)} without a cut"
    return ""


def _usually(pace: Pace) -> float:
    """The middle commit beside the last cuts, of those in them or those after them."""
    return max(statistics.median(cut.own_s for cut in pace.cuts), statistics.median(cut.next_s for cut in pace.cuts))


def _slower(pace: Pace, reason: str, limits: Limits, *, surely: bool) -> Pace:
    step = max(limits.smallest, pace.step // 2)
    brake = pace.brake
    if surely and pace.step <= limits.smallest:
        # Only time is left to give; as much as what is felt is too much.
        excess = _usually(pace) / limit_s(pace, limits)
        brake = min(HARDEST, max(2.0 if excess <= 1.0 else excess, brake))
    pause_s = _pause(pace, brake, limits)
    return replace(pace, step=step, pause_s=pause_s, cuts=(), brake=brake, probing=False, reason=reason)


def _faster(pace: Pace, limits: Limits) -> Pace:
    """Grows only where there is room: nearer than two thirds to what is allowed it stays as it is."""
    step, brake, pause_s = pace.step, max(1.0, pace.brake / 2), _pause(pace, pace.brake, limits)
    allowed = limit_s(pace, limits)
    worst = max(max(cut.own_s, cut.next_s) for cut in pace.cuts)
    # A slow one is no reason to give way, but one to look once more before going further.
    roomy = _usually(pace) < allowed * 2 / 3 and worst < allowed * 3
    if roomy and brake == 1.0:
        step += pace.step // 3 if pace.probing else max(limits.smallest // 4, pace.step // 8)
    reason = "" if roomy and brake == 1.0 else pace.reason
    return replace(pace, step=min(step, limits.largest), pause_s=pause_s, cuts=(), brake=brake, reason=reason)


def _pause(pace: Pace, brake: float, limits: Limits) -> float:
    busy = statistics.median(cut.busy_s for cut in pace.cuts)
    return min(limits.longest_pause_s, busy * (1 / limits.busy_share - 1) * brake)


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
    return usual, replace(pace, brake=min(pace.brake * 2, HARDEST), reason=words(now, usual))


def _pressure(now: float, usual: float | None) -> str:
    return f"tasks wait for I/O {human_pct(now)} of the time, {human_pct(usual)} before it began"


def _waits(now: float, usual: float | None) -> str:
    return f"requests of the device take {_ms(now)}, {_ms(usual)} before it began"


def felt(commit_s: float, pace: Pace) -> bool:
    """Does a commit right after a cut still feel it?"""
    return bool(pace.quiet) and commit_s > max(1.5 * statistics.median(pace.quiet), _fifth(pace.quiet))


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
