"""What the agent found out about a dump or restore, as a row of the progress panel: its program, phases and objects.

Ages go on from the moment it was looked at.
"""

from __future__ import annotations

from msgspec.structs import asdict

from dba_console.frames.facts import PictureFacts
from dba_console.frames.job_sessions import ClientProgram
from dba_console.frames.progress_model import JobCounts, ObjectRow, PhaseRow, ProgressRow
from dba_console.frames.timestamps import rfc3339
from dba_console.samples.jobs import JobNow, JobsNow, ObjectNow, PhaseNow
from dba_console.samples.postgres import Activity

PART = "jobs.now"
MAX_AGE_S = 20.0
"""A look at the programs that is older tells nothing of now: it is made every two seconds."""
MIN_READ = 0.05
"""Of a file: below it no time left is told, for its beginning misleads."""
YOUNG_US = 5_000_000
"""A session that began since the last look at the programs belongs to the one of its name."""


class ObservedJobs:
    """The newest look at the programs, and whose each session is."""

    def __init__(self, facts: PictureFacts) -> None:
        age_s = facts.picture.age_s(PART)
        now = facts.picture.now(PART, JobsNow)
        latest = facts.picture.latest.get(PART)
        self.error_note = None if latest is None or latest.part.status == "ok" else latest.part.note
        """Why the programs cannot be looked at now."""
        self.jobs: dict[ClientProgram, JobNow] = {}
        self.age_s = age_s or 0.0
        if now is None or age_s is None or age_s > MAX_AGE_S:
            return
        self.jobs = {ClientProgram(job.kind, job.pid or -1 - number): job for number, job in enumerate(now.jobs)}

    def owners(self, rows: list[Activity], now_us: int) -> dict[int, ClientProgram]:
        """Session -> its program; sessions that began since are counted to the one program of their name."""
        owners = {pid: owner for owner, job in self.jobs.items() for pid in job.backends}
        if not owners:
            return owners
        names: dict[tuple[str | None, ...], set[ClientProgram]] = {}
        for row in rows:
            if (owner := owners.get(row.pid)) is not None:
                names.setdefault(_name(row), set()).add(owner)
        for row in rows:
            if row.pid not in owners and now_us - (row.backend_start or 0) < YOUNG_US and row.application != "psql":
                mine = names.get(_name(row), ())
                if len(mine) == 1:
                    owners[row.pid] = next(iter(mine))
        return owners

    def without_session(self, seen: set[ClientProgram | None]) -> list[JobNow]:
        """Programs without a session when they were looked at: between two sessions, or syncing what they wrote. Of one
        whose sessions are gone since, it is not known whether it goes on.
        """
        return [job for owner, job in self.jobs.items() if owner not in seen and not job.backends]


def _name(row: Activity) -> tuple[str | None, ...]:
    return row.application, row.user, row.database, row.client


def program_row(job: JobNow, since_s: float) -> ProgressRow:
    """The row of a program without a session."""
    row = ProgressRow(kind=job.kind, pid=None, database=job.database, user=job.user)
    fill_row(row, job, since_s)
    return row


def fill_program(row: ProgressRow, job: JobNow) -> None:
    """What its program is, reads and writes."""
    row.process, row.client, row.run = job.pid, job.client, job.run
    row.backends = sorted({*job.backends, *row.backends})
    row.version, row.format, row.compression, row.jobs = job.version, job.format, job.compression, job.jobs
    row.command = job.command
    row.reads, row.read_bytes, row.read_size_bytes = job.reads, job.read_bytes, job.read_size_bytes
    row.writes, row.written_bytes, row.written_per_s = job.writes, job.written_bytes, job.written_per_s
    row.mount, row.free_bytes, row.need_bytes, row.fits = job.mount, job.free_bytes, job.need_bytes, job.fits
    row.sources, row.unknown = list(job.sources), list(job.unknown)


def fill_row(row: ProgressRow, job: JobNow, since_s: float) -> None:
    """Everything the agent found out about it, `since_s` seconds ago."""
    fill_program(row, job)
    row.phase = job.phase or row.phase
    row.pct, row.scope, row.grade = job.pct, "whole", job.grade
    row.eta_s, row.eta_grade = _remaining_s(job.eta_s, since_s), job.eta_grade
    if job.pct is None:
        _fill_part(row, job, since_s)
    if job.total is not None or row.done is None:
        row.done, row.total, row.unit, row.rate_per_s = job.done, job.total, job.unit, job.rate_per_s
    if job.started_us is not None:
        row.started = rfc3339(job.started_us)
    if job.elapsed_s is not None:
        row.elapsed_s = job.elapsed_s + since_s
    row.phases = [_phase_row(phase, since_s) for phase in job.phases]
    row.objects = [_object_row(one, since_s) for one in job.objects]
    if job.phases:
        row.counts = JobCounts(**dict(zip(("running", "done", "waiting", "failed"), job.counts, strict=True)))
    row.object = ", ".join(one.name for one in job.objects if one.state == "running") or row.object
    row.critical, row.errors, row.last_error = list(job.critical), job.errors, job.last_error


def _fill_part(row: ProgressRow, job: JobNow, since_s: float) -> None:
    """Where nothing tells how far the whole is: the share of its data, or of the file that is read."""
    data = next((one for one in job.phases if one.name == "data" and one.state == "running"), None)
    if data is not None and data.pct is not None:
        row.phase, row.pct, row.scope, row.grade = data.name, data.pct, "phase", data.grade
        row.eta_s, row.eta_grade = _remaining_s(data.eta_s, since_s), data.eta_grade
    elif job.read_bytes is not None and job.read_size_bytes and not job.writes:
        read = min(1.0, job.read_bytes / job.read_size_bytes)
        row.pct, row.scope, row.grade = 100.0 * read, "file", "measured"
        if MIN_READ <= read < 1 and job.elapsed_s is not None:
            row.eta_s, row.eta_grade = _remaining_s(job.elapsed_s * (1 - read) / read, since_s), "estimated"


def _remaining_s(eta_s: float | None, since_s: float) -> float | None:
    return None if eta_s is None else max(0.0, eta_s - since_s)


def _phase_row(phase: PhaseNow, since_s: float) -> PhaseRow:
    fields = asdict(phase)
    row = PhaseRow(started=rfc3339(fields.pop("started_us")), **fields)
    row.eta_s = _remaining_s(phase.eta_s, since_s)
    if phase.done is not None and phase.wall_s:
        row.rate_per_s = phase.done / phase.wall_s
    if phase.state == "running" and phase.wall_s is not None:
        row.wall_s = phase.wall_s + since_s
    return row


def _object_row(one: ObjectNow, since_s: float) -> ObjectRow:
    fields = asdict(one)
    row = ObjectRow(started=rfc3339(fields.pop("started_us")), **fields)
    row.eta_s = _remaining_s(one.eta_s, since_s)
    if one.state == "running" and one.elapsed_s is not None:
        row.elapsed_s = one.elapsed_s + since_s
    return row
