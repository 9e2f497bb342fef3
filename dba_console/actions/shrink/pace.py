"""Pace of a stepwise truncation: the size of each cut, and the pause after it. Pure.

Freed space goes through the file system's journal, as all commits do: the commit time during a cut is its effect on
others. Its maximum is bounded by the size of the cut, not by the reaction to slow commits: so all cuts are small, each
is committed at once, so that discards do not accumulate, and the pause is twice as long as the cut took.

It slows down only for its own effect: commits during cuts that are clearly slower than those in pauses. If both are
slow, the disk is busy with other work: then it cuts at most 10 MB every 20 ms, which leaves nearly all the time to
others, but does not stop while they work.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.core.units import human_bytes, human_pct

MIB = 1 << 20
CUTS_PER_VERDICT = 5
"""Cuts of the same step that are evaluated together."""
QUIET_COMMITS = CUTS_PER_VERDICT
"""Commits in pauses whose median is the quiet commit time."""
DATABASE_COMMITS = 3
"""Commits of the database that are evaluated together."""
MAX_BRAKE = 16.0
"""Maximum factor that lengthens pauses."""
MAX_COST_RATIO = 1.3
"""A larger step is kept if it costs at most this many times the smaller one: then the commit is the cost, not the
freed space."""
VERDICTS_TO_GROW = 3
"""Clean verdicts required before the step grows; doubled after each back-off, four times after a back-off only because
a larger step cost more."""
MAX_VERDICTS_TO_GROW = 192


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """Limits of the pace."""

    first_step: int = 10 * MIB
    """Size used in manual deletions that did not slow down the database."""
    smallest_step: int = 2 * MIB
    largest_step: int = 32 * MIB
    commit_ratio: float = 3.0
    """A commit during a cut may take this many times one in a pause. It waits for the commit in progress, then for its
    own: that is twice, as behind any other writer, and leaves once more for what the cut adds."""
    commit_extra_s: float = 0.008
    """A commit may always take this much longer than in a pause: one rotation of a disk at 7,200 rpm. On two busy
    processors 10 MB add 4 to 7 ms, in whatever steps they are cut (measured)."""
    commit_limit_s: float = 0.1
    """Maximum commit time, also on a slow disk."""
    pause_ratio: float = 2.0
    """Length of a pause relative to the cut before it."""
    shortest_pause_s: float = 0.001
    longest_pause_s: float = 0.015
    """After 10 MB, under normal load."""
    busy_pause_s: float = 0.02
    """After 10 MB or less, under load: as in manual deletions that did not slow down the database."""
    trouble_s: float = 0.5
    """If commits in pauses take this long, other work has saturated the disk: no cut while that lasts."""
    stall_floor_pct: float = 50.0
    """Pressure (PSI io some) below this is normal on a database host; its own commits cause about a third of it."""
    await_floor_s: float = 0.02
    """A read or write of the device below this is normal, also on spinning disks."""
    pressure_ratio: float = 3.0
    """Pressure and device waits count from this many times their values before the first cut."""


@dataclass(frozen=True, slots=True)
class CutMeasurement:
    """Measurements of one cut. Seconds; None: not measured this time."""

    step: int
    """Bytes cut off."""
    duration_s: float
    """The cut with its commit."""
    next_commit_s: float | None = None
    """The commit after it: a file system discards freed blocks after its own commit, which delays the next one."""
    database_commit_s: float | None = None
    """A commit of the database right after it."""
    database_quiet_s: float | None = None
    """The last commit of the database in a pause."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The current pace."""

    step: int
    pause_s: float
    quiet: tuple[float, ...] = ()
    """The last commits in pauses, oldest first."""
    baseline_s: float = 0.0
    """The median commit before the first cut."""
    cuts: tuple[CutMeasurement, ...] = ()
    """Cuts of this step since the last verdict, oldest first."""
    next_commits_s: tuple[float, ...] = ()
    """The last commits right after cuts of this step, oldest first."""
    database: tuple[tuple[float, float], ...] = ()
    """The last commits of the database with cuts of this step, and in the pause before, oldest first."""
    clean_verdicts: int = 0
    """Consecutive verdicts without a reason to slow down."""
    verdicts_to_grow: int = VERDICTS_TO_GROW
    smaller: tuple[int, float] | None = None
    """The step that this one grew from, with its commit time: this one may not cost clearly more."""
    in_doubt: bool = False
    """Commits during cuts were slow, possibly because of other work that started since the last timed pause. So one is
    timed in each pause now; if these are not slow, the cuts are the cause."""
    brake: float = 1.0
    """Factor that lengthens pauses."""
    reason: str = ""
    """Why it slows down; empty when it does not."""

    @property
    def quiet_s(self) -> float | None:
        """The commit time while nothing is cut."""
        return statistics.median(self.quiet) if self.quiet else None


def first_pace(baseline: tuple[float, ...], limits: PaceLimits) -> Pace:
    """Return the pace of the first cut, from commits timed before it."""
    usual = statistics.median(baseline) if baseline else 0.0
    return Pace(max(min(limits.smallest_step, limits.largest_step), min(limits.first_step, limits.largest_step)), 0.0,
                baseline[-QUIET_COMMITS:], usual)  # fmt: skip


def allowed_commit_s(quiet_s: float, limits: PaceLimits) -> float:
    """Return how long a commit during a cut may take, if one in a pause takes `quiet_s`."""
    return min(limits.commit_limit_s, max(limits.commit_ratio * quiet_s, quiet_s + limits.commit_extra_s))


def with_quiet_commit(pace: Pace, quiet_s: float) -> Pace:
    """Return the pace with one more commit timed in a pause. All are added: a selection would bias the median down."""
    return replace(pace, quiet=(*pace.quiet, quiet_s)[-QUIET_COMMITS:])


def next_pace(pace: Pace, cut: CutMeasurement, limits: PaceLimits) -> Pace:
    """Return the pace after a cut.

    A single slow commit is chance and common on a busy host: the cost of a step is the median of several cuts. Only a
    commit above the limit is acted on at once.
    """
    if cut.step < pace.step * 9 // 10:  # the end of the file or the edge of a hole: not a whole step
        return pace
    pace = _with_measurement(pace, cut)
    worst = max(cut.duration_s, cut.next_commit_s or 0.0)
    if worst > limits.commit_limit_s and pace.step > limits.smallest_step:
        step = max(limits.smallest_step, pace.step // 2)
        slower = _with_step(pace, step, reason=f"a commit took {_ms_text(worst)} during a cut")
        # The first may be chance: then the step soon grows again.
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
    """Return how the last cuts slowed down others; empty: they did not."""
    usually, quiet = _median_commit_s(pace), pace.quiet_s or 0.0
    if usually > allowed_commit_s(quiet, limits):
        return f"commits took {_ms_text(usually)} during a cut, {_ms_text(quiet)} without one"
    if len(pace.database) == DATABASE_COMMITS:
        took, quiet = (statistics.median(times) for times in zip(*pace.database, strict=True))
        if took > allowed_commit_s(quiet, limits):
            return f"the database took {_ms_text(took)} to commit, {_ms_text(quiet)} without a cut"
    return ""


def _median_commit_s(pace: Pace) -> float:
    """Return the median commit time of the last cuts, or of the commits right after them if larger."""
    return max(statistics.median(cut.duration_s for cut in pace.cuts), _median_next_commit_s(pace))


def _median_next_commit_s(pace: Pace) -> float:
    """Return the median commit right after a cut; 0 for fewer than three, which may be chance."""
    return statistics.median(pace.next_commits_s) if len(pace.next_commits_s) >= 3 else 0.0


def _with_step(pace: Pace, step: int, *, reason: str) -> Pace:
    """Return the pace with another step, without the measurements of the old step."""
    return replace(
        pace, step=step, cuts=(), next_commits_s=(), database=(), clean_verdicts=0, smaller=None, reason=reason
    )


def _slower(pace: Pace, reason: str, limits: PaceLimits) -> Pace:
    patience = min(MAX_VERDICTS_TO_GROW, pace.verdicts_to_grow * 2)
    if pace.step > limits.smallest_step:
        step = max(limits.smallest_step, pace.step // 2)
        return replace(_with_step(pace, step, reason=reason), verdicts_to_grow=patience, in_doubt=True)
    # The step is already the smallest: lengthen the pauses.
    return replace(
        pace, brake=min(MAX_BRAKE, pace.brake * 2), clean_verdicts=0, verdicts_to_grow=patience, reason=reason
    )


def _steady(pace: Pace, limits: PaceLimits) -> Pace:
    """Return the pace without a slowdown. The step grows after a while; above the first step only on a quiet disk."""
    busy = _busy_reason(pace, limits)
    if busy and pace.step > limits.first_step:
        return replace(_with_step(pace, limits.first_step, reason=busy), in_doubt=False)
    if pace.smaller is not None and _median_commit_s(pace) > MAX_COST_RATIO * pace.smaller[1]:
        patience = min(MAX_VERDICTS_TO_GROW, pace.verdicts_to_grow * 4)
        return replace(_with_step(pace, pace.smaller[0], reason=""), verdicts_to_grow=patience, in_doubt=False)
    # The slow commits may have been caused by other load.
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
    """Return why the disk is busy: commits in pauses are slower than before the first cut, whatever the cause."""
    quiet = pace.quiet_s
    if quiet is None or quiet <= max(limits.commit_ratio * pace.baseline_s, pace.baseline_s + limits.commit_extra_s):
        return ""
    return f"commits take {_ms_text(quiet)} without a cut, {_ms_text(pace.baseline_s)} before the start"


def _with_pause(pace: Pace, cut: CutMeasurement, limits: PaceLimits) -> Pace:
    """Return the pace with the pause after this cut, in which the device also processes discards."""
    size = pace.step / (10 * MIB)
    if pace.reason or pace.in_doubt:
        return replace(pace, pause_s=limits.busy_pause_s * max(1.0, size) * pace.brake)
    discards = max(0.0, _median_next_commit_s(pace) - (pace.quiet_s or 0.0))
    pause_s = min(limits.longest_pause_s * size, limits.pause_ratio * cut.duration_s + discards)
    return replace(pace, pause_s=max(limits.shortest_pause_s, pause_s) * pace.brake)


@dataclass(frozen=True, slots=True)
class HostPressure:
    """Pressure in percent, and the wait of a device request in seconds, over the last one or two seconds."""

    stall_pct: float | None = None
    await_s: float | None = None


def adapt_to_host(
    pace: Pace, usual: HostPressure, last: HostPressure, now: HostPressure, limits: PaceLimits
) -> tuple[Pace, HostPressure]:
    """Return the pace after reading the host's pressure, and the new usual values.

    The values do not show their cause. So pauses are doubled; if the value does not fall, this deletion is not the
    cause, and the value becomes the usual one.
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
    return f"tasks wait for I/O {human_pct(now)} of the time, {human_pct(usual)} before the start"


def _await_text(now: float, usual: float | None) -> str:
    return f"device requests take {_ms_text(now)}, {_ms_text(usual)} before the start"


def foreign_load_reason(quiet_s: float | None, limits: PaceLimits) -> str:
    """Return why to wait before the next cut because of other load; empty: no reason."""
    if quiet_s is None or quiet_s <= limits.trouble_s:
        return ""
    return f"commits take {_ms_text(quiet_s)} without any cut: waiting until they are faster"


def pace_text(pace: Pace) -> str:
    """Return the pace as text."""
    steps = f"steps of {human_bytes(pace.step)}"
    return f"{steps}; slowed down: {pace.reason}" if pace.reason else steps


def _ms_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
