"""Read the job history without changes, for the screen and `session report --dumps`.

The agent replaces the file atomically, so a reader always gets a consistent state. A damaged file is reported and left
unchanged: only the agent renames it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from dba_console.core.target import Address
from dba_console.jobs.history.duration_trend import PastRun, PastRuns, TargetJobHistory
from dba_console.jobs.history.history_files import DamagedHistory, history_path, read_history
from dba_console.jobs.history.kept_history import KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import JobRun, comparable_job_runs, runs_by_format, typical_runs, typical_s
from dba_console.watch.samples.jobs import JobKey


def read_job_history(target_key: str, address: Address | None = None) -> TargetJobHistory:
    """Return the job history of the target's server; `note` is the reason if nothing can be read. `address` identifies
    the server if the target itself was never observed. Waits for the disk.
    """
    path = history_path(target_key, address)
    try:
        kept = None if path is None else read_history(path)
    except DamagedHistory as error:
        return TargetJobHistory(note=str(error))
    except OSError as error:
        return TargetJobHistory(note=f"cannot read the job history {path}: {error.strerror}")
    if kept is None:
        return TargetJobHistory(note="no dump or restore of this server is known: no agent has recorded one")
    return job_history_view(kept)


def job_history_view(kept: KeptHistory) -> TargetJobHistory:
    """Return the file's content for display, most recent jobs first; dumps of several formats are several jobs."""
    runs = {(one.kind, one.database, one.user): one.runs for one in kept.jobs}
    jobs = []
    for one in kept.jobs:
        formats = runs_by_format(one.kind, one.runs)
        jobs += [_job(one, own, form if len(formats) > 1 else None, runs) for form, own in formats.items()]
    jobs.sort(key=lambda job: -job.runs[-1].ended_us)
    return TargetJobHistory(
        jobs=tuple(jobs), until_us=kept.until_us, note=None if jobs else "no dump or restore has ended yet"
    )


def only_ended_before(past: TargetJobHistory, at_us: int) -> TargetJobHistory:
    """Return only the runs that had ended at that time."""
    jobs = []
    for job in past.jobs:
        runs = tuple(run for run in job.runs if run.ended_us <= at_us)
        if runs:
            jobs.append(structs.replace(job, runs=runs))
    note = past.note or (None if jobs else "no dump or restore had ended by then")
    return structs.replace(past, jobs=tuple(jobs), note=note)


def _job(kept: KeptJob, own: Sequence[JobRun], form: str | None, every: Mapping[JobKey, Sequence[JobRun]]) -> PastRuns:
    typical = set(map(id, typical_runs(own)))
    runs = sorted(own, key=lambda run: run.started_us)
    key = (kept.kind, kept.database, kept.user)
    return PastRuns(
        kind=kept.kind,
        database=kept.database,
        user=kept.user,
        runs=tuple(
            PastRun(**structs.asdict(run), counts=id(run) in typical, exit_tells=kept.kind != "psql") for run in runs
        ),
        usual_s=typical_s(own if form is not None else comparable_job_runs(every, key, runs[-1].source)),
        watched_since_us=kept.watched_since_us,
        format=form,
    )
