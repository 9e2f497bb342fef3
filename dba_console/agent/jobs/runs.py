"""What the runs of one job say together: how long it usually takes, how far apart they are. Pure.

Whether a run did its work is not known to who only sees its sessions come and go. So medians are used, and runs that
cannot have done it are left out: see `counted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct

KEPT = 60
"""Runs remembered per job: two months of nights."""
ENOUGH = 3
"""With fewer runs nothing is usual."""
SHORT_SHARE = 1 / 5
"""A run shorter than this share of the median was cancelled, or was of a part only."""
BRIEF_S = 60.0
LONG_S = 600.0
"""Where two runs took ten minutes and more, those under a minute are another job under the same name."""
MANY = 8
"""With so many distances known the longest of them is taken for an exception."""


Moment = Annotated[int, Meta(ge=0, le=1 << 60)]
"""Microseconds since 1970; what is read from a file must be one."""


class Run(Struct, array_like=True, frozen=True, gc=False):
    """One run, from its first session to its last."""

    started_us: Moment
    """Host wall time."""
    seconds: Annotated[float, Meta(ge=0, le=1e10)]
    unbroken: bool
    """Everything since the run before it was watched: the distance between the two is known."""

    @property
    def ended_us(self) -> int:
        return self.started_us + int(self.seconds * 1e6)


def counted(runs: Sequence[Run]) -> list[Run]:
    """The runs that tell what is usual, in their order.

    A dump cancelled after three seconds must not make three seconds usual, and a schema dumped every hour must not hide
    the dump of each night under the same name. So, once three runs are known, those shorter than a fifth of the median
    are left out; and where two runs took ten minutes or more, those under a minute are. Unusually long runs stay: they
    did the work, and a median bears them.

    >>> [run.seconds for run in counted([Run(0, s, True) for s in (3600.0, 3.0, 3700.0, 3500.0)])]
    [3600.0, 3700.0, 3500.0]
    """
    kept = list(runs)
    if sum(run.seconds >= LONG_S for run in kept) >= 2:
        kept = [run for run in kept if run.seconds >= BRIEF_S]
    if len(kept) < ENOUGH:
        return kept
    least = SHORT_SHARE * median(run.seconds for run in kept)
    return [run for run in kept if run.seconds >= least]


def usual_s(runs: Sequence[Run]) -> float | None:
    """Median duration of the runs that count, seconds; None with fewer than three.

    >>> usual_s([Run(0, s, True) for s in (60.0, 62.0, 70.0)]), usual_s([Run(0, 60.0, True)])
    (62.0, None)
    """
    known = counted(runs)
    return median(run.seconds for run in known) if len(known) >= ENOUGH else None


def distances_s(runs: Sequence[Run]) -> list[float]:
    """Seconds from start to start of runs that count and follow each other, where all between them was watched."""
    kept = set(map(id, counted(runs)))
    found: list[float] = []
    before: Run | None = None
    unbroken = True
    for run in runs:
        unbroken = unbroken and run.unbroken
        if id(run) not in kept:
            continue
        apart = 0.0 if before is None else (run.started_us - before.started_us) / 1e6
        if unbroken and apart > 0:  # a clock set back gives none
            found.append(apart)
        before, unbroken = run, True
    return found


def longest_s(distances: Sequence[float]) -> float | None:
    """The longest distance that may be called usual: a week of nights has two days without, a year has one holiday.

    >>> longest_s([24.0, 24.0, 72.0]), longest_s([24.0] * 8 + [72.0])
    (72.0, 24.0)
    """
    if not distances:
        return None
    ordered = sorted(distances)
    return ordered[-2] if len(ordered) >= MANY else ordered[-1]


def trimmed(runs: Sequence[Run]) -> list[Run]:
    """At most `KEPT` runs: those that do not count go first, then the oldest."""
    kept = list(runs)
    while len(kept) > KEPT:
        telling = set(map(id, counted(kept)))
        idle = next((run for run in kept if id(run) not in telling), kept[0])
        kept.remove(idle)
    return kept
