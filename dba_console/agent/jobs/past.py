"""The history of jobs as those read it who only look: the screen and `session report --dumps`. Changes nothing.

It is read while an agent replaces it whole, so it is always one of its states. What cannot be read is said, and left
where it is: only the agent puts a damaged file aside.
"""

from __future__ import annotations

import os

import msgspec

from dba_console.agent.jobs.history import KeptHistory, KeptJob
from dba_console.agent.jobs.runs import Run, counted, usual_s
from dba_console.agent.jobs.store import SIZE_LIMIT, history_file
from dba_console.frames.past_jobs import JobPast, Past, PhasePast, RunPast


def read_past(target_key: str) -> Past:
    """What is known of the jobs of that target; where nothing can be read, `note` says why. Waits for the disk."""
    path = history_file(target_key)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return Past(note=f"no dump or restore of this target is known: no agent has kept {path}")
    except OSError as error:
        return Past(note=f"the history of jobs cannot be read: {path}: {error.strerror}")
    try:
        if len(content) > SIZE_LIMIT:
            return Past(note=f"the history of jobs is larger than an agent writes it: {path}")
        return past_of(msgspec.json.decode(content, type=KeptHistory))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Past(note=f"{path} is no history of jobs: {error}")


def past_of(kept: KeptHistory) -> Past:
    """The file as it is told; the jobs that ran last first."""
    jobs = [_job(one) for one in kept.jobs if one.runs]
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


def _job(kept: KeptJob) -> JobPast:
    telling = set(map(id, counted(kept.runs)))
    runs = sorted(kept.runs, key=lambda run: run.started_us)
    return JobPast(
        kind=kept.kind,
        database=kept.database,
        user=kept.user,
        runs=tuple(_run(run, kept.kind, counts=id(run) in telling) for run in runs),
        usual_s=usual_s(kept.runs),
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
