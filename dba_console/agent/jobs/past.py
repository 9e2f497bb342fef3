"""The history of jobs as those read it who only look: the screen and `session report --dumps`. Changes nothing.

It is read while an agent replaces it whole, so it is always one of its states. What cannot be read is said, and left
where it is: only the agent puts a damaged file aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dba_console.agent.jobs.gathering import Beside, beside, joined
from dba_console.agent.jobs.history import KeptHistory, KeptJob
from dba_console.agent.jobs.runs import Run, alike, counted, usual_s
from dba_console.agent.jobs.store import Damaged, history_file, read
from dba_console.frames.past_jobs import JobPast, Past, PhasePast, RunPast
from dba_console.samples.jobs import JobKey
from dba_console.target import Address


def read_past(target_key: str, address: Address | None = None) -> Past:
    """What is known of the jobs of that target's server; where nothing can be read, `note` says why. `address` finds
    the server where the target itself was never watched. Waits for the disk.
    """
    path = history_file(target_key)
    own: KeptHistory | None = None
    unread: list[str] = []
    others = Beside()
    try:
        own = read(path)
    except Damaged as error:
        unread.append(str(error))
    except OSError as error:
        unread.append(f"the history of jobs cannot be read: {path}: {error.strerror}")
    try:
        others = beside(path, None if own is None else own.server, address)
    except OSError as error:
        unread.append(f"the history of jobs cannot be read: {path.parent}: {error.strerror}")
    unread += others.unread
    kept = joined([*([] if own is None else [own]), *others.histories])
    if kept is None and not unread:
        return Past(note=f"no dump or restore of this server is known: no agent has kept {path}")
    past = Past() if kept is None else past_of(kept)
    return msgspec.structs.replace(past, note="; ".join([*unread, *([past.note] if past.note else [])]) or None)


def past_of(kept: KeptHistory) -> Past:
    """The file as it is told; the jobs that ran last first."""
    runs = {(one.kind, one.database, one.user): one.runs for one in kept.jobs}
    jobs = [_job(one, runs) for one in kept.jobs if one.runs]
    jobs.sort(key=lambda job: -job.runs[-1].ended_us)
    return Past(jobs=tuple(jobs), until_us=kept.until_us, note=None if jobs else "no dump or restore has ended yet")


def before(past: Past, at_us: int) -> Past:
    """Only what had ended at a moment: what a console of that time would have known."""
    jobs = []
    for job in past.jobs:
        runs = tuple(run for run in job.runs if run.ended_us <= at_us)
        if runs:
            jobs.append(msgspec.structs.replace(job, runs=runs))
    note = past.note or (None if jobs else "no dump or restore had ended by then")
    return msgspec.structs.replace(past, jobs=tuple(jobs), note=note)


def _job(kept: KeptJob, every: Mapping[JobKey, Sequence[Run]]) -> JobPast:
    telling = set(map(id, counted(kept.runs)))
    runs = sorted(kept.runs, key=lambda run: run.started_us)
    return JobPast(
        kind=kept.kind,
        database=kept.database,
        user=kept.user,
        runs=tuple(_run(run, kept.kind, counts=id(run) in telling) for run in runs),
        usual_s=usual_s(alike(every, (kept.kind, kept.database, kept.user), runs[-1].source)),
        watched_since_us=kept.watched_since_us,
    )


def _run(run: Run, kind: str, *, counts: bool) -> RunPast:
    return RunPast(
        started_us=run.started_us,
        seconds=run.seconds,
        counts=counts,
        size_bytes=run.size_bytes,
        bytes=run.bytes,
        rate_per_s=run.rate_per_s,
        format=run.format,
        version=run.version,
        jobs=run.jobs,
        exit=run.exit,
        errors=run.errors,
        last_error=run.last_error,
        phases=tuple(PhasePast(name=one.name, wall_s=one.wall_s, busy_s=one.busy_s, bytes=one.bytes)
                     for one in run.phases),
        whole=run.whole,
        exit_tells=kind != "psql",
    )  # fmt: skip
