"""What the runs of one job say together: how long it usually takes, how far apart they are. Pure.

Whether a run did its work is not known to who only sees its sessions come and go. So medians are used, and runs that
cannot have done it are left out: see `typical_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, structs

from dba_console.watch.samples.jobs import JobKey

MAX_RUNS = 60
"""Runs remembered per job: two months of nights."""
MIN_RUNS = 3
"""With fewer runs nothing is usual."""
SHORT_SHARE = 1 / 5
"""A run shorter than this share of the median was cancelled, or was of a part only."""
BRIEF_S = 60.0
LONG_S = 600.0
"""Where two runs took ten minutes and more, those under a minute are another job under the same name."""
MIN_REACHED = 0.5
"""Of its data: a run seen to go before that was ended, or was over before it was looked at again."""
MIN_INTERVALS_FOR_OUTLIER = 8
"""With so many distances known the longest of them is taken for an exception."""


Moment = Annotated[int, Meta(ge=0, le=1 << 60)]
"""Microseconds since 1970; what is read from a file must be one."""


Amount = Annotated[int, Meta(ge=0, le=1 << 62)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
MAX_ERROR_LENGTH = 300
"""Characters of an error that are kept."""
MAX_SOURCE_LENGTH = 63 * 4
"""Characters of a database's name that are kept: the archive says it, and may say anything."""
MAX_VERSION_LENGTH = 40
"""The same of a version: it is what a directory is called."""
MAX_PHASES = 16


class RunPhase(Struct, array_like=True, frozen=True, gc=False):
    """What one phase of a run took. With -j phases overlap: their wall times may add up to more than the run's."""

    name: Annotated[str, Meta(max_length=40)]
    wall_s: Seconds
    """From its first object's start to its last one's end."""
    busy_s: Seconds
    """Of all its objects together."""
    bytes: Amount | None = None
    """That its objects weigh."""


class JobRun(Struct, array_like=True, frozen=True, gc=False):
    """One run: from its program's start to its end, or from first to last session where only these were seen."""

    started_us: Moment
    """Host wall time."""
    seconds: Seconds
    unbroken: bool
    """Everything since the run before it was watched: the distance between the two is known."""
    size_bytes: Amount | None = None
    """Of the tables that were dumped, or of the data in the archive that was restored."""
    bytes: Amount | None = None
    """Written by a dump, read by a restore."""
    rate_per_s: Annotated[float, Meta(ge=0, le=1e18)] | None = None
    """Of `bytes`, over the whole run."""
    format: Annotated[str, Meta(max_length=40)] | None = None
    version: Annotated[str, Meta(max_length=MAX_VERSION_LENGTH)] | None = None
    jobs: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    exit: Annotated[int, Meta(ge=-1024, le=1 << 20)] | None = None
    """Known where a keeper of ours ran it; below 0 the signal that ended it."""
    errors: Amount | None = None
    """Known where its messages could be read."""
    phases: Annotated[tuple[RunPhase, ...], Meta(max_length=MAX_PHASES)] = ()
    last_error: Annotated[str, Meta(max_length=MAX_ERROR_LENGTH)] | None = None
    whole: bool | None = None
    """Whether it did all it set out to, errors that pg_restore passes over aside; None where that is not known."""
    reached: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The part of its data that was through when it was last seen; None where nobody saw any."""
    source: Annotated[str, Meta(max_length=MAX_SOURCE_LENGTH)] | None = None
    """Of a restore: the database its archive was made of, where that tells it."""

    @property
    def ended_us(self) -> int:
        return self.started_us + int(self.seconds * 1e6)


class RunFacts(Struct, frozen=True, kw_only=True):
    """What is known of a run besides its times; the fields are those of `Run`."""

    size_bytes: int | None = None
    bytes: int | None = None
    format: str | None = None
    version: str | None = None
    jobs: int | None = None
    exit: int | None = None
    errors: int | None = None
    phases: tuple[RunPhase, ...] = ()
    last_error: str | None = None
    whole: bool | None = None
    reached: float | None = None
    source: str | None = None


def limit_phases(told: RunFacts, seconds: float) -> RunFacts:
    """The same with no phase longer than the run, whose last session is seen to go before its program is."""
    phases = tuple(structs.replace(one, wall_s=min(one.wall_s, seconds)) for one in told.phases)
    return structs.replace(told, phases=phases)


def make_run(started_us: int, seconds: float, unbroken: bool, told: RunFacts | None) -> JobRun:
    """A run as it is kept.

    >>> make_run(5, 10.0, True, RunFacts(bytes=50, last_error="x" * 1000)).rate_per_s
    5.0
    """
    run = JobRun(max(0, started_us), round(seconds, 3), unbroken)
    if told is None:
        return run
    rate = None if told.bytes is None or seconds <= 0 else round(told.bytes / seconds, 1)
    fields = structs.asdict(told) | {
        "last_error": _cut(told.last_error, MAX_ERROR_LENGTH), "source": _cut(told.source, MAX_SOURCE_LENGTH),
        "version": _cut(told.version, MAX_VERSION_LENGTH), "phases": told.phases[:MAX_PHASES],
    }  # fmt: skip
    return structs.replace(run, rate_per_s=rate, **fields)


def _cut(text: str | None, longest: int) -> str | None:
    """What is longer than its field would not be read again, and with it none of the history."""
    return None if text is None else text[:longest]


def typical_runs(runs: Sequence[JobRun]) -> list[JobRun]:
    """The runs that tell what is usual, in their order.

    A dump cancelled after three seconds must not make three seconds usual, and a schema dumped every hour must not hide
    the dump of each night under the same name. So, once three runs are known, those shorter than a fifth of the median
    are left out; and where two runs took ten minutes or more, those under a minute are. So is one that is known to have
    failed, and one whose end nobody tells that was last seen with less than half of its data through. Unusually long
    runs stay: they did the work, and a median bears them.

    >>> [run.seconds for run in typical_runs([JobRun(0, s, True) for s in (3600.0, 3.0, 3700.0, 3500.0)])]
    [3600.0, 3700.0, 3500.0]
    """
    kept = [
        run for run in runs if run.whole or (run.whole is None and (run.reached is None or run.reached >= MIN_REACHED))
    ]
    if sum(run.seconds >= LONG_S for run in kept) >= 2:
        kept = [run for run in kept if run.seconds >= BRIEF_S]
    if len(kept) < MIN_RUNS:
        return kept
    least = SHORT_SHARE * median(run.seconds for run in kept)
    return [run for run in kept if run.seconds >= least]


def comparable_job_runs(kept: Mapping[JobKey, Sequence[JobRun]], key: JobKey, source: str | None) -> list[JobRun]:
    """The runs that count a job is compared with, the oldest first: its own; of a restore whose archive tells its
    `source`, all of that database, by this program and user, whatever they were restored into.

    >>> night = {("pg_restore", f"shop_{day}", "app"): [JobRun(day, 60.0, True, source="shop")] for day in (1, 2)}
    >>> [run.started_us for run in comparable_job_runs(night, ("pg_restore", "shop_3", "app"), "shop")]
    [1, 2]
    >>> (comparable_job_runs(night, ("pg_restore", "shop_2", "app"), "mid"),
    ...  comparable_job_runs(night, ("pg_restore", "shop_3", "app"), None))
    ([], [])
    """
    if source is None:
        return typical_runs(kept.get(key, ()))
    found = [
        run
        for other, runs in kept.items()
        if (other[0], other[2]) == (key[0], key[2])
        for run in runs
        if run.source == source or (run.source is None and other == key)
    ]
    return typical_runs(sorted(found, key=lambda run: run.started_us))


def typical_s(runs: Sequence[JobRun]) -> float | None:
    """Median duration of the runs that count, seconds; None with fewer than three.

    >>> typical_s([JobRun(0, s, True) for s in (60.0, 62.0, 70.0)]), typical_s([JobRun(0, 60.0, True)])
    (62.0, None)
    """
    known = typical_runs(runs)
    return median(run.seconds for run in known) if len(known) >= MIN_RUNS else None


def intervals_s(runs: Sequence[JobRun]) -> list[float]:
    """Seconds from start to start of runs that count and follow each other, where all between them was watched."""
    kept = set(map(id, typical_runs(runs)))
    found: list[float] = []
    before: JobRun | None = None
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


def longest_typical_s(distances: Sequence[float]) -> float | None:
    """The longest distance that may be called usual: a week of nights has two days without, a year has one holiday.

    >>> longest_typical_s([24.0, 24.0, 72.0]), longest_typical_s([24.0] * 8 + [72.0])
    (72.0, 24.0)
    """
    if not distances:
        return None
    ordered = sorted(distances)
    return ordered[-2] if len(ordered) >= MIN_INTERVALS_FOR_OUTLIER else ordered[-1]


def trim_runs(runs: Sequence[JobRun]) -> list[JobRun]:
    """At most `MAX_RUNS` runs: those that do not count go first, then the oldest."""
    kept = list(runs)
    while len(kept) > MAX_RUNS:
        telling = set(map(id, typical_runs(kept)))
        idle = next((run for run in kept if id(run) not in telling), kept[0])
        kept.remove(idle)
    return kept
