"""What keeps a parallel dump from being quicker: told from what was measured while it ran, or told as unknown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dba_console.dumping.jobs_curve import JobsCurve, TrialRun
from dba_console.sanitize import clean
from dba_console.units import human_duration, human_pct

BUSY_PCT = 90.0
"""Of all processors, or of a disk's time."""
OTHERS_PCT = 25.0
MEMORY_SHARE = 0.2
"""Of what was dumped, read from the disk: below it the pages were in memory."""
BUSY_SHARE = 0.85
"""Of the time a process could have run, what it did: it waited for hardly anything."""


class Bottleneck(NamedTuple):
    kind: str
    sentence: str


class LargestTable(NamedTuple):
    """The biggest table."""

    name: str
    size: int


def _other_cpu_pct(run: TrialRun, cpus: int) -> float:
    """Of all processors, what was busy and not with the trial; 0 where its server side was not seen."""
    if run.host_busy_pct is None or run.server_s is None or run.wall_s <= 0:
        return 0.0
    return run.host_busy_pct - 100 * run.cpu_s / (run.wall_s * cpus)


def is_disturbed(runs: Sequence[TrialRun], cpus: int) -> bool:
    """Whether others took so much of the host that trials are hardly comparable."""
    return any(_other_cpu_pct(run, cpus) >= OTHERS_PCT for run in runs)


def find_bottleneck(curve: JobsCurve, largest: LargestTable | None, ceiling: str) -> Bottleneck:
    """What the knee runs into. `ceiling` says what set the most jobs that were tried."""
    jobs = curve.knee()
    run = curve.runs[jobs]
    return (
        _table_bottleneck(curve, run, largest)
        or _cpu_bottleneck(curve, run)
        or _disk_bottleneck(run.read_util_pct, "read", "the disk the data are read from")
        or _disk_bottleneck(run.write_util_pct, "write", "the disk the dump is written to")
        or (_job_limit(curve, run, ceiling) if jobs == curve.most else None)
        or Bottleneck("unknown", "nothing that was measured: locks, the network or what stands behind the disk")
    )


def _table_bottleneck(curve: JobsCurve, run: TrialRun, largest: LargestTable | None) -> Bottleneck | None:
    total = sum(curve.sizes)
    if largest is None or not total or largest.size / total < 1.2 / max(2, run.jobs):
        return None
    alone = largest.size / max(curve.runs[1].rate if 1 in curve.runs else run.max_job_rate, 1e-9)
    if alone < 0.8 * curve.seconds(run.jobs):
        return None
    share = human_pct(100 * largest.size / total)
    return Bottleneck(
        "table",
        f"one big table: {clean(largest.name)} is {share} of all data and takes about {human_duration(alone)} by "
        "itself, whatever the number of jobs",
    )


def _cpu_bottleneck(curve: JobsCurve, run: TrialRun) -> Bottleneck | None:
    if run.host_busy_pct is None or run.host_busy_pct < BUSY_PCT:
        return None
    spent = run.wall_s * curve.cpus
    own = human_pct(min(100.0, 100 * run.cpu_s / spent)) if spent > 0 else "?"
    return Bottleneck(
        "cpu",
        f"the processors of this host: {human_pct(run.host_busy_pct)} busy with -j {run.jobs}, {own} of them with the "
        "dump itself",
    )


def _disk_bottleneck(util_pct: float | None, kind: str, what: str) -> Bottleneck | None:
    if util_pct is None or util_pct < BUSY_PCT:
        return None
    return Bottleneck(kind, f"{what}: busy {human_pct(util_pct)} of the time")


def _job_limit(curve: JobsCurve, run: TrialRun, ceiling: str) -> Bottleneck:
    per_job = max(1e-3, run.jobs * (run.wall_s - run.startup_s))
    if run.client_s / per_job >= BUSY_SHARE:
        side = "; each job waits for its own pg_dump process, which compresses"
    elif run.server_s is not None and run.server_s / per_job >= BUSY_SHARE:
        side = "; each job waits for its session in the server, which reads and formats"
    else:
        side = ""
    kind = {"connections": "connections", "tables": "tables"}.get(ceiling.split(":")[0], "most")
    return Bottleneck(kind, f"{ceiling.partition(':')[2].strip()}{side}")


def measurement_notes(runs: Sequence[TrialRun], table_bytes: int, cpus: int, memory: int | None) -> tuple[str, ...]:
    """What the figures do not tell by themselves."""
    found = []
    others = max((_other_cpu_pct(run, cpus) for run in runs), default=0.0)
    if others >= OTHERS_PCT:
        found.append(
            f"others kept up to {human_pct(others)} of the processors busy: on a quieter host more jobs may help"
        )
    known = [run for run in runs if run.read_bytes is not None and run.done > 0]
    cached = [run for run in known if (run.read_bytes or 0) < MEMORY_SHARE * run.done]
    if cached and len(cached) >= len(known) - 1:
        text = (
            "these runs read from memory" if len(cached) == len(known) else "all but one of these runs read from memory"
        )
        if memory is not None and table_bytes > memory:
            text += ", and the database is larger than memory: a real dump reads from the disk (--fresh shows that)"
        found.append(text)
    if runs and not known:
        found.append("whether these runs read from memory or from the disk could not be seen")
    if any(run.server_s is None for run in runs):
        found.append("the server runs on another host: its processors and disks were not seen")
    return tuple(found)
