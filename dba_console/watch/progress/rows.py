"""Rows of the panel: long operations, and of dumps and restores what the agent observed of their program.

Fields have the names of `show --json`; units as in `watch/panel.py`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from dba_console.core.clock import rfc3339
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.job_sessions import ClientProgram
from dba_console.watch.samples.jobs import (
    JobFacts,
    JobNow,
    JobsNow,
    ObjectFacts,
    ObjectNow,
    PhaseFacts,
    PhaseNow,
    ProgramFacts,
)
from dba_console.watch.samples.postgres import Activity


class PhaseRow(PhaseFacts, kw_only=True):
    started: str | None = None
    rate_per_s: float | None = None
    """Units per second of wall_s."""


class ObjectRow(ObjectFacts, kw_only=True):
    started: str | None = None


class JobCounts(Struct, kw_only=True):
    """Objects of a dump or restore by state."""

    running: int = 0
    done: int = 0
    waiting: int = 0
    failed: int = 0


class ProgressRow(JobFacts, kw_only=True):
    """A long operation; pct and eta_s refer to `scope`."""

    pid: int | None
    object: str | None = None
    started: str | None = None
    part_of: int | None = None
    """The `pid` of the row of the dump or restore this session belongs to."""
    blocks: int = 0
    """Sessions blocked by its locks."""
    wait: str | None = None
    """Wait event, if no other progress is known."""
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""
    # The fields below are only for dumps and restores, and mostly only if their program runs on this host.
    scope: str = "phase"
    """phase, file or whole: what pct and eta_s refer to; `file`: the file it reads, after which indexes and keys may
    follow. With `whole`, done and total refer to the whole too."""
    late_s: float | None = None
    """Time beyond its typical duration; None if unknown or not late."""
    usual_runs: int | None = None
    """Number of runs that usual_s is the median of."""
    process: int | None = None
    """The program's process on this host; pid is a backend of the server."""
    backends: list[int] = []
    """Its sessions; the newest ones may be missing."""
    counts: JobCounts | None = None
    """None if its objects are unknown."""
    phases: list[PhaseRow] = []
    objects: list[ObjectRow] = []
    """The relevant ones, ordered: running, failed, largest waiting, last done; all are in counts."""
    critical: list[str] = []
    """The critical path: largest table, its indexes, its keys."""
    xid_age: int | None = None
    """Age of the xmin horizon its sessions hold back, in transactions."""
    sources: list[str] = []
    """Data sources used."""
    unknown: list[str] = []
    """What is unknown and why, in sentences."""


# Dumps and restores as the agent observed them: program, phases and objects. Ages advance from the time of the
# observation.

PART = "jobs.now"
MAX_AGE_S = 20.0
"""An older observation of the programs is not used: they are observed every two seconds."""
LEAST_ETA_S = 1.0
"""While something runs, nothing is left of no time."""
MIN_READ = 0.05
"""Minimum share of a file for an ETA: the rate at the start is misleading."""
YOUNG_US = 5_000_000
"""A session younger than this, since the last observation, is assigned to the program of its name."""


class ObservedJobs:
    """The newest observation of the job programs, and the program of each session."""

    def __init__(self, facts: PictureFacts) -> None:
        age_s = facts.picture.age_s(PART)
        now = facts.picture.now(PART, JobsNow)
        latest = facts.picture.latest.get(PART)
        self.error_note = None if latest is None or latest.part.status == "ok" else latest.part.note
        """Why the programs cannot be observed now."""
        self.jobs: dict[ClientProgram, JobNow] = {}
        self.age_s = age_s or 0.0
        if now is None or age_s is None or age_s > MAX_AGE_S:
            return
        self.jobs = {ClientProgram(job.kind, job.pid or -1 - number): job for number, job in enumerate(now.jobs)}

    def owners(self, rows: list[Activity], now_us: int) -> dict[int, ClientProgram]:
        """Return session -> its program; newer sessions are assigned to the only program of their name."""
        owners = {pid: owner for owner, job in self.jobs.items() for pid in job.backends}
        if not owners:
            return owners
        names: dict[tuple[str | None, ...], set[ClientProgram]] = {}
        for row in rows:
            if (owner := owners.get(row.pid)) is not None:
                names.setdefault(_name(row), set()).add(owner)
        for row in rows:
            if row.pid not in owners and now_us - (row.backend_start or 0) < YOUNG_US and row.application != "psql":
                programs = names.get(_name(row), ())
                if len(programs) == 1:
                    owners[row.pid] = next(iter(programs))
        return owners

    def without_session(self, seen: set[ClientProgram | None]) -> list[JobNow]:
        """Return programs that had no session when observed: between two sessions, or syncing their output. If its
        sessions have ended since, it is unknown whether the program still runs."""
        return [job for owner, job in self.jobs.items() if owner not in seen and not job.backends]


def _name(row: Activity) -> tuple[str | None, ...]:
    return row.application, row.user, row.database, row.client


def program_row(job: JobNow, since_s: float) -> ProgressRow:
    """Return the row of a program without a session."""
    row = ProgressRow(kind=job.kind, pid=None, database=job.database, user=job.user)
    fill_row(row, job, since_s)
    return row


def fill_program(row: ProgressRow, job: JobNow) -> None:
    """Fill in the program's version and options, input and output."""
    row.process, row.backends = job.pid, sorted({*job.backends, *row.backends})
    for name in ProgramFacts.__struct_fields__:
        setattr(row, name, getattr(job, name))
    row.sources, row.unknown = list(job.sources), list(job.unknown)


def fill_row(row: ProgressRow, job: JobNow, since_s: float) -> None:
    """Fill in everything the agent observed, `since_s` seconds ago."""
    fill_program(row, job)
    row.phase = job.phase or row.phase
    row.pct, row.scope, row.grade = job.pct, "whole", job.grade
    row.eta_s, row.eta_grade = _remaining_s(job.eta_s, since_s), job.eta_grade
    if job.total is not None or row.done is None:
        row.done, row.total, row.unit, row.rate_per_s = job.done, job.total, job.unit, job.rate_per_s
    if job.pct is None:
        _fill_part(row, job, since_s)
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
    """Without a share of the whole: use the share of its data, or of the file that is read, and its amount."""
    data = next((one for one in job.phases if one.name == "data" and one.state == "running"), None)
    if data is not None and data.pct is not None:
        row.phase, row.pct, row.scope, row.grade = data.name, data.pct, "phase", data.grade
        row.done, row.total, row.unit = data.done, data.total, data.unit
        row.eta_s, row.eta_grade = _remaining_s(data.eta_s, since_s), data.eta_grade
    elif job.read_bytes is not None and job.read_size_bytes and not job.writes:
        read = min(1.0, job.read_bytes / job.read_size_bytes)
        row.pct, row.scope, row.grade = 100.0 * read, "file", "measured"
        row.done, row.total, row.unit = float(job.read_bytes), float(job.read_size_bytes), "bytes"
        if MIN_READ <= read < 1 and job.elapsed_s is not None:
            row.eta_s, row.eta_grade = _remaining_s(job.elapsed_s * (1 - read) / read, since_s), "estimated"


def _remaining_s(eta_s: float | None, since_s: float) -> float | None:
    return None if eta_s is None else max(LEAST_ETA_S, eta_s - since_s)


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
