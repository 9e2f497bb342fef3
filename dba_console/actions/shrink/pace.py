"""How much is cut off at a time, and how long nothing is done between two cuts: pure.

Freed space goes through the file system's journal, and with it everybody's commits: how long a commit takes beside a
cut is what others feel of it. What one feels at worst is bounded by the size of the cut, not by how fast slow commits
are answered: so cuts are small from the first to the last, each is committed at once, lest the discards of many pile
up, and the disk is left to others for twice as long as the cut took.

It gives way only to what it does itself: commits beside cuts that are clearly slower than those in pauses. Where both
are slow, the disk is busy with others: then it cuts no faster than ten megabytes every fiftieth of a second, which
leaves nearly all the time to them, but does not crawl for as long as they work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.core.units import human_bytes, human_pct

MIB = 1 << 20
CUTS_PER_VERDICT = 5
"""Cuts of the same step that are looked at together."""
QUIET_COMMITS = CUTS_PER_VERDICT
"""Commits in pauses that the quiet figure is the median of: those between the witnesses, if need be."""
DATABASE_COMMITS = 3
"""Commits of the database that are looked at together."""
MAX_BRAKE = 16.0
"""The brake at its hardest."""
MAX_COST_RATIO = 1.3
"""A larger step is kept where it costs no more than this many times the smaller one: it is then the commit that costs,
and not what is freed."""
VERDICTS_TO_GROW = 3
"""Times that many witnesses must have nothing to say before the step grows; twice as many after each time it had to
become smaller again, four times where that was only for a larger one to be dearer."""
MAX_VERDICTS_TO_GROW = 192


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """What the pace goes by."""

    first_step: int = 10 * MIB
    """As was cut by hand where a database did not suffer."""
    smallest_step: int = 2 * MIB
    largest_step: int = 32 * MIB
    commit_ratio: float = 3.0
    """A commit beside a cut may take this many times one in a pause. It waits for one that is under way, then for its
    own: that is twice, as behind any other writer, and leaves as much again for what the cut adds."""
    commit_extra_s: float = 0.008
    """This much more than in a pause it may always take: one turn of a spinning disk at 7,200 a minute. Where two
    processors are kept busy by others, ten megabytes add 4 to 7 ms, however they are cut off (measured)."""
    commit_limit_s: float = 0.1
    """More than this is never allowed, however slow the disk is by itself."""
    pause_ratio: float = 2.0
    """A pause takes this many times what the cut before it took."""
    shortest_pause_s: float = 0.001
    longest_pause_s: float = 0.015
    """After ten megabytes, while nothing is wrong."""
    busy_pause_s: float = 0.02
    """After ten megabytes or less, while something is: as was done by hand, where a database did not suffer."""
    trouble_s: float = 0.5
    """Commits in pauses that take this long are somebody else's trouble: nothing is added to it while it lasts."""
    stall_floor_pct: float = 50.0
    """Pressure (PSI io some) below this is ordinary on a database host; waiting for its own commits makes a third."""
    await_floor_s: float = 0.02
    """A read or write of the device below this is ordinary, also on spinning disks."""
    pressure_ratio: float = 3.0
    """Pressure and waits of the device count from this many times what they were before the first cut."""


@dataclass(frozen=True, slots=True)
class CutMeasurement:
    """What one cut was measured to be. Seconds; None where it was not measured this time."""

    step: int
    """Bytes cut off."""
    duration_s: float
    """The cut with its commit."""
    next_commit_s: float | None = None
    """The commit after it: what a file system frees it gives back to the device (discard) after its own commit, so that
    the next one feels it."""
    database_commit_s: float | None = None
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
    baseline_s: float = 0.0
    """The middle commit before the first cut."""
    cuts: tuple[CutMeasurement, ...] = ()
    """Those of this step since the last verdict, oldest first."""
    next_commits_s: tuple[float, ...] = ()
    """The last commits right after cuts of this step, oldest first."""
    database: tuple[tuple[float, float], ...] = ()
    """The last commits of the database with cuts of this step, and in the pause before, oldest first."""
    clean_verdicts: int = 0
    """Verdicts in a row that there is nothing to give way to."""
    verdicts_to_grow: int = VERDICTS_TO_GROW
    smaller: tuple[int, float] | None = None
    """The step that this one grew from, and what was felt of a cut of it: this one may be no dearer."""
    in_doubt: bool = False
    """Commits beside cuts were slow; others may have begun to work since one in a pause was timed. So one is timed in
    each pause now, and if that does not explain it, it was the cuts."""
    brake: float = 1.0
    """Pauses are made longer by this much."""
    reason: str = ""
    """Why it holds back; empty when it does not."""

    @property
    def quiet_s(self) -> float | None:
        """What a commit takes while nothing is cut."""
        return statistics.median(self.quiet) if self.quiet else None


def first_pace(baseline: tuple[float, ...], limits: PaceLimits) -> Pace:
    """The pace of the first cut, after commits that were timed before it."""
    usual = statistics.median(baseline) if baseline else 0.0
    return Pace(max(min(limits.smallest_step, limits.largest_step), min(limits.first_step, limits.largest_step)), 0.0,
                baseline[-QUIET_COMMITS:], usual)  # fmt: skip


def allowed_commit_s(quiet_s: float, limits: PaceLimits) -> float:
    """How long a commit beside a cut may take, where one in a pause takes `quiet_s`."""
    return min(limits.commit_limit_s, max(limits.commit_ratio * quiet_s, quiet_s + limits.commit_extra_s))


def with_quiet_commit(pace: Pace, quiet_s: float) -> Pace:
    """The pace with one more commit timed at the end of a pause, whatever it took: a choice among them would make the
    quiet figure ever smaller."""
    return replace(pace, quiet=(*pace.quiet, quiet_s)[-QUIET_COMMITS:])


def next_pace(pace: Pace, cut: CutMeasurement, limits: PaceLimits) -> Pace:
    """The pace after a cut.

    A slow commit by itself is chance, on a host with other work it happens all the time: what the middle one of some
    cuts of the same step feels is what the step costs. Only one that nobody could bear is answered at once.
    """
    if cut.step < pace.step * 9 // 10:  # the file's end or a hole's rim: says nothing about a whole step
        return pace
    pace = _with_measurement(pace, cut)
    worst = max(cut.duration_s, cut.next_commit_s or 0.0)
    if worst > limits.commit_limit_s and pace.step > limits.smallest_step:
        step = max(limits.smallest_step, pace.step // 2)
        slower = _with_step(pace, step, reason=f"a commit took {_ms_text(worst)} beside a cut")
        # The first may be chance: then it is soon taken back.
        return _with_pause(
            slower if pace.reason else replace(slower, clean_verdicts=pace.verdicts_to_grow - 1), cut, limits
        )
    if len(pace.cuts) < CUTS_PER_VERDICT:
        return _with_pause(pace, cut, limits)
    reason = _slowdown_reason(pace, limits)
    if reason and not pace.in_doubt:
        pace = replace(pace, next_commits_s=(), in_doubt=True)
    else:
        pace = _slower(pace, reason, limits) if reason else _steady(pace, limits)
    return _with_pause(replace(pace, cuts=()), cut, limits)


def _with_measurement(pace: Pace, cut: CutMeasurement) -> Pace:
    following, database = pace.next_commits_s, pace.database
    if cut.next_commit_s is not None:
        following = (*following, cut.next_commit_s)[-CUTS_PER_VERDICT:]
    if cut.database_commit_s is not None and cut.database_quiet_s is not None:
        database = (*database, (cut.database_commit_s, cut.database_quiet_s))[-DATABASE_COMMITS:]
    return replace(pace, cuts=(*pace.cuts, cut), next_commits_s=following, database=database)


def _slowdown_reason(pace: Pace, limits: PaceLimits) -> str:
    """What the last cuts did to others, in words; empty where that is nothing, or not their own doing."""
    usually, quiet = _median_commit_s(pace), pace.quiet_s or 0.0
    if usually > allowed_commit_s(quiet, limits):
        return f"commits took {_ms_text(usually)} beside a cut, {_ms_text(quiet)} without one"
    if len(pace.database) == DATABASE_COMMITS:
        took, quiet = (statistics.median(times) for times in zip(*pace.database, strict=True))
        if took > allowed_commit_s(quiet, limits):
            return f"the database took {_ms_text(took)} to commit, {_ms_text(quiet)} without a cut"
    return ""


def _median_commit_s(pace: Pace) -> float:
    """The middle commit beside the last cuts: of those with them, or of those right after them."""
    return max(statistics.median(cut.duration_s for cut in pace.cuts), _median_next_commit_s(pace))


def _median_next_commit_s(pace: Pace) -> float:
    """Of fewer than three nobody can tell chance from cost."""
    return statistics.median(pace.next_commits_s) if len(pace.next_commits_s) >= 3 else 0.0


def _with_step(pace: Pace, step: int, *, reason: str) -> Pace:
    """What was seen of another step says nothing about this one."""
    return replace(
        pace, step=step, cuts=(), next_commits_s=(), database=(), clean_verdicts=0, smaller=None, reason=reason
    )


def _slower(pace: Pace, reason: str, limits: PaceLimits) -> Pace:
    patience = min(MAX_VERDICTS_TO_GROW, pace.verdicts_to_grow * 2)
    if pace.step > limits.smallest_step:
        step = max(limits.smallest_step, pace.step // 2)
        return replace(_with_step(pace, step, reason=reason), verdicts_to_grow=patience, in_doubt=True)
    # Only time is left to give.
    return replace(
        pace, brake=min(MAX_BRAKE, pace.brake * 2), clean_verdicts=0, verdicts_to_grow=patience, reason=reason
    )


def _steady(pace: Pace, limits: PaceLimits) -> Pace:
    """Nothing to give way to. Grows after a while; beyond the first step only while the disk is quiet."""
    busy = _busy_reason(pace, limits)
    if busy and pace.step > limits.first_step:
        return replace(_with_step(pace, limits.first_step, reason=busy), in_doubt=False)
    if pace.smaller is not None and _median_commit_s(pace) > MAX_COST_RATIO * pace.smaller[1]:
        patience = min(MAX_VERDICTS_TO_GROW, pace.verdicts_to_grow * 4)
        return replace(_with_step(pace, pace.smaller[0], reason=""), verdicts_to_grow=patience, in_doubt=False)
    # What was slow beside a cut may have been the others' load as it came.
    patience = min(pace.verdicts_to_grow, VERDICTS_TO_GROW) if busy else pace.verdicts_to_grow
    pace = replace(
        pace,
        brake=max(1.0, pace.brake / 2),
        clean_verdicts=pace.clean_verdicts + 1,
        verdicts_to_grow=patience,
        in_doubt=False,
    )
    largest = (
        min(limits.first_step, limits.largest_step) if busy or pace.step < limits.first_step else limits.largest_step
    )
    if pace.clean_verdicts >= patience and pace.brake == 1.0 and pace.step < largest:
        before = (pace.step, _median_commit_s(pace)) if pace.step >= limits.first_step else None
        pace = replace(_with_step(pace, min(2 * pace.step, largest), reason=pace.reason), smaller=before)
    whole = pace.step >= min(limits.first_step, limits.largest_step) and pace.brake == 1.0
    return replace(pace, reason=busy or ("" if whole else pace.reason))


def _busy_reason(pace: Pace, limits: PaceLimits) -> str:
    """Are commits in pauses slower than before the first cut? Whoever's doing that is, haste would not help."""
    quiet = pace.quiet_s
    if quiet is None or quiet <= max(limits.commit_ratio * pace.baseline_s, pace.baseline_s + limits.commit_extra_s):
        return ""
    return f"commits take {_ms_text(quiet)} without a cut, {_ms_text(pace.baseline_s)} before it began"


def _with_pause(pace: Pace, cut: CutMeasurement, limits: PaceLimits) -> Pace:
    """With the pause after this cut: in it the device does what it was told to discard, too."""
    size = pace.step / (10 * MIB)
    if pace.reason or pace.in_doubt:
        return replace(pace, pause_s=limits.busy_pause_s * max(1.0, size) * pace.brake)
    discards = max(0.0, _median_next_commit_s(pace) - (pace.quiet_s or 0.0))
    pause_s = min(limits.longest_pause_s * size, limits.pause_ratio * cut.duration_s + discards)
    return replace(pace, pause_s=max(limits.shortest_pause_s, pause_s) * pace.brake)


@dataclass(frozen=True, slots=True)
class HostPressure:
    """What the host says over a second or two: pressure in percent, and what a request of the device waits, seconds."""

    stall_pct: float | None = None
    await_s: float | None = None


def adapt_to_host(
    pace: Pace, usual: HostPressure, last: HostPressure, now: HostPressure, limits: PaceLimits
) -> tuple[Pace, HostPressure]:
    """The pace after a look at the host, and what counts as usual from now on.

    These figures do not tell whose doing they are. So pauses are doubled, and where the figure does not fall for that,
    it was not this deletion's: then it is what is usual here.
    """
    stall, pace = _adapt_to_figure(
        pace, usual.stall_pct, last.stall_pct, now.stall_pct, limits.stall_floor_pct, limits, _pressure_text
    )
    wait, pace = _adapt_to_figure(
        pace, usual.await_s, last.await_s, now.await_s, limits.await_floor_s, limits, _await_text
    )
    return pace, HostPressure(stall, wait)


def _adapt_to_figure(
    pace: Pace,
    usual: float | None,
    last: float | None,
    now: float | None,
    floor: float,
    limits: PaceLimits,
    words: Callable[[float, float | None], str],
) -> tuple[float | None, Pace]:
    if now is None or now <= max(floor, limits.pressure_ratio * (usual or 0.0)):
        return usual, pace
    if pace.brake > 1.0 and last is not None and now > last * 0.8:
        return now, pace
    return usual, replace(pace, brake=min(pace.brake * 2, MAX_BRAKE), reason=words(now, usual))


def _pressure_text(now: float, usual: float | None) -> str:
    return f"tasks wait for I/O {human_pct(now)} of the time, {human_pct(usual)} before it began"


def _await_text(now: float, usual: float | None) -> str:
    return f"requests of the device take {_ms_text(now)}, {_ms_text(usual)} before it began"


def foreign_load_reason(quiet_s: float | None, limits: PaceLimits) -> str:
    """Why to wait before the next cut though nothing was cut just now; empty where there is no reason."""
    if quiet_s is None or quiet_s <= limits.trouble_s:
        return ""
    return f"commits take {_ms_text(quiet_s)} without any cut: it waits for that to pass"


def pace_text(pace: Pace) -> str:
    """The pace in words."""
    steps = f"steps of {human_bytes(pace.step)}"
    return f"{steps}; holds back: {pace.reason}" if pace.reason else steps


def _ms_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
