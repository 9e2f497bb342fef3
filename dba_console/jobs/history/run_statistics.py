"""The past runs of a job and their statistics: typical duration and interval. Pure functions.

Sessions alone do not show whether a run succeeded. So medians are used, and runs that cannot have succeeded are left
out: see `typical_runs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, structs

from dba_console.jobs.archives.object_durations import Amount, RunObject, RunPhase, Seconds
from dba_console.watch.samples.jobs import JobKey

MAX_RUNS = 60
"""Maximum runs per job: two months of nightly runs."""
MIN_RUNS = 3
"""Minimum runs for a typical duration."""
SHORT_SHARE = 1 / 5
"""A run shorter than this share of the median was cancelled, or was partial."""
BRIEF_S = 60.0
LONG_S = 600.0
"""If two runs took ten minutes or more, those under a minute are another job with the same name."""
MIN_REACHED = 0.5
"""Share of its data: a run last observed below it was cancelled, or ended before the next scan."""
MIN_INTERVALS_FOR_OUTLIER = 8
"""With this many intervals the longest one counts as an exception."""


Moment = Annotated[int, Meta(ge=0, le=1 << 60)]
"""Microseconds since 1970; validated when read from a file."""


MAX_ERROR_LENGTH = 300
"""Maximum characters of an error."""
MAX_SOURCE_LENGTH = 63 * 4
"""Maximum characters of a database name: it is read from the archive and not trusted."""
MAX_VERSION_LENGTH = 40
"""Maximum characters of a version: it is read from a directory name."""
MAX_PHASES = 16
MAX_LONGEST = 20
MAX_OBJECT_NAME = 300


class RunFacts(Struct, frozen=True, kw_only=True):
    """The facts of a run besides its times. None: unknown."""

    size_bytes: Amount | None = None
    """Size of the dumped tables, or of the restored data in the archive."""
    bytes: Amount | None = None
    """Written by a dump, read by a restore."""
    format: Annotated[str, Meta(max_length=40)] | None = None
    version: Annotated[str, Meta(max_length=MAX_VERSION_LENGTH)] | None = None
    jobs: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    exit: Annotated[int, Meta(ge=-1024, le=1 << 20)] | None = None
    """Known if our keeper ran it; negative: terminated by that signal."""
    errors: Amount | None = None
    """Known if its messages could be read."""
    phases: Annotated[tuple[RunPhase, ...], Meta(max_length=MAX_PHASES)] = ()
    last_error: Annotated[str, Meta(max_length=MAX_ERROR_LENGTH)] | None = None
    whole: bool | None = None
    """Whether it was complete, apart from errors that pg_restore ignores."""
    reached: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of its data done when last observed."""
    source: Annotated[str, Meta(max_length=MAX_SOURCE_LENGTH)] | None = None
    """Of a restore: the dumped database, if recorded in the archive."""
    longest: Annotated[tuple[RunObject, ...], Meta(max_length=MAX_LONGEST)] = ()
    """The objects that took longest, if their times were observed."""


class JobRun(RunFacts, array_like=True, frozen=True, gc=False):
    """One run: from start to end of its program, or from first to last session if only these were observed."""

    started_us: Moment
    """Host wall time."""
    seconds: Seconds
    unbroken: bool
    """Everything since the previous run was observed: the interval between the two is known."""
    rate_per_s: Annotated[float, Meta(ge=0, le=1e18)] | None = None
    """Of `bytes`, over the whole run."""

    @property
    def ended_us(self) -> int:
        return self.started_us + int(self.seconds * 1e6)


def limit_phases(facts: RunFacts, seconds: float) -> RunFacts:
    """Limit the phases to the duration of the run, because its last session ends before its program."""
    phases = tuple(structs.replace(one, wall_s=min(one.wall_s, seconds)) for one in facts.phases)
    return structs.replace(facts, phases=phases)


def make_run(started_us: int, seconds: float, unbroken: bool, facts: RunFacts | None) -> JobRun:
    """Return a run to store.

    >>> make_run(5, 10.0, True, RunFacts(bytes=50, last_error="x" * 1000)).rate_per_s
    5.0
    """
    run = JobRun(max(0, started_us), round(seconds, 3), unbroken)
    if facts is None:
        return run
    rate = None if facts.bytes is None or seconds <= 0 else round(facts.bytes / seconds, 1)
    fields = structs.asdict(facts) | {
        "last_error": _cut(facts.last_error, MAX_ERROR_LENGTH), "source": _cut(facts.source, MAX_SOURCE_LENGTH),
        "version": _cut(facts.version, MAX_VERSION_LENGTH), "phases": facts.phases[:MAX_PHASES],
    }  # fmt: skip
    return structs.replace(run, rate_per_s=rate, **fields)


def _cut(text: str | None, longest: int) -> str | None:
    """Truncate a text to its field: a longer one would make the whole history unreadable."""
    return None if text is None else text[:longest]


def typical_runs(runs: Sequence[JobRun]) -> list[JobRun]:
    """Return the runs that determine the typical duration, in order.

    A dump cancelled after three seconds must not make three seconds typical, and an hourly schema dump must not hide
    the nightly dump of that name. So, with three or more runs, those shorter than a fifth of the median are left out;
    if two runs took ten minutes or more, those under a minute too. So are failed runs, and runs with an unknown result
    last observed with less than half of their data done. Unusually long runs stay: they are complete, and a median
    tolerates them.

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


_DUMPS = frozenset({"pg_dump", "pg_basebackup"})
"""Programs whose runs of different formats are different jobs: another duration, and their own schedule."""


def runs_by_format(kind: str, runs: Sequence[JobRun]) -> dict[str | None, list[JobRun]]:
    """Return the runs of a dump by format, in order. Runs of an unknown format belong to the only known one, if there
    is just one; runs of other programs are not divided.

    >>> two = [JobRun(0, 9.0, True, format=one) for one in ("custom", None, "plain")]
    >>> list(runs_by_format("pg_dump", two)), list(runs_by_format("pg_dump", two[:2]))
    (['custom', None, 'plain'], ['custom'])
    >>> list(runs_by_format("pg_restore", two))
    [None]
    """
    if kind not in _DUMPS:
        return {None: list(runs)} if runs else {}
    known = {run.format for run in runs} - {None}
    only = next(iter(known)) if len(known) == 1 else None
    found: dict[str | None, list[JobRun]] = {}
    for run in runs:
        found.setdefault(run.format or only, []).append(run)
    return found


def of_format(kind: str, runs: Sequence[JobRun], format: str | None) -> list[JobRun]:
    """Return the runs a run of this format is compared with; all of them if its format is unknown.

    >>> two = [JobRun(0, 9.0, True, format=one) for one in ("custom", "plain")]
    >>> [run.format for run in of_format("pg_dump", two, "plain")], of_format("pg_dump", two, "directory")
    (['plain'], [])
    """
    found = runs_by_format(kind, runs)
    if format is None or not found.keys() - {None}:
        return list(runs)
    return found.get(format, [])


def comparable_job_runs(
    kept: Mapping[JobKey, Sequence[JobRun]], key: JobKey, source: str | None, format: str | None = None
) -> list[JobRun]:
    """Return the typical runs a job is compared with, oldest first: its own, of a dump those of its format; for a
    restore with a known `source` all restores of that database by this program and user, into any database.

    >>> night = {("pg_restore", f"shop_{day}", "app"): [JobRun(day, 60.0, True, source="shop")] for day in (1, 2)}
    >>> [run.started_us for run in comparable_job_runs(night, ("pg_restore", "shop_3", "app"), "shop")]
    [1, 2]
    >>> (comparable_job_runs(night, ("pg_restore", "shop_2", "app"), "mid"),
    ...  comparable_job_runs(night, ("pg_restore", "shop_3", "app"), None))
    ([], [])
    """
    if source is None:
        return typical_runs(of_format(key[0], kept.get(key, ()), format))
    found = [
        run
        for other, runs in kept.items()
        if (other[0], other[2]) == (key[0], key[2])
        for run in runs
        if run.source == source or (run.source is None and other == key)
    ]
    return typical_runs(sorted(found, key=lambda run: run.started_us))


def typical_s(runs: Sequence[JobRun]) -> float | None:
    """Return the median duration of the typical runs in seconds; None with fewer than three.

    >>> typical_s([JobRun(0, s, True) for s in (60.0, 62.0, 70.0)]), typical_s([JobRun(0, 60.0, True)])
    (62.0, None)
    """
    known = typical_runs(runs)
    return median(run.seconds for run in known) if len(known) >= MIN_RUNS else None


def intervals_s(runs: Sequence[JobRun], own: Sequence[JobRun] | None = None) -> list[float]:
    """Return the seconds from start to start of successive typical runs, if all in between was observed. `own`: those
    of `runs` that are meant, the others are of another format."""
    kept = set(map(id, typical_runs(runs if own is None else own)))
    found: list[float] = []
    before: JobRun | None = None
    unbroken = True
    for run in runs:
        unbroken = unbroken and run.unbroken
        if id(run) not in kept:
            continue
        apart = 0.0 if before is None else (run.started_us - before.started_us) / 1e6
        if unbroken and apart > 0:  # not if the clock was set back
            found.append(apart)
        before, unbroken = run, True
    return found


def longest_typical_s(distances: Sequence[float]) -> float | None:
    """Return the longest typical interval: every week may skip two nights, but a single exception does not count.

    >>> longest_typical_s([24.0, 24.0, 72.0]), longest_typical_s([24.0] * 8 + [72.0])
    (72.0, 24.0)
    """
    if not distances:
        return None
    ordered = sorted(distances)
    return ordered[-2] if len(ordered) >= MIN_INTERVALS_FOR_OUTLIER else ordered[-1]


def trim_runs(runs: Sequence[JobRun]) -> list[JobRun]:
    """Return at most `MAX_RUNS` runs: remove those that are not typical first, then the oldest."""
    kept = list(runs)
    while len(kept) > MAX_RUNS:
        typical = set(map(id, typical_runs(kept)))
        removed = next((run for run in kept if id(run) not in typical), kept[0])
        kept.remove(removed)
    return kept
