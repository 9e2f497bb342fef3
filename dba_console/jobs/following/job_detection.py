"""Detect jobs among the sessions of the server: their start and end, or that the end is unknown.

A job ends when its sessions are missing in the next reading; if its program was found on this host, when that has ended
too. If the server was not connected or not read in between, its end is unknown, which is not "finished".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from dba_console.jobs.history.kept_history import ReportedProgress
from dba_console.jobs.history.run_statistics import JobRun, RunFacts
from dba_console.watch.job_sessions import JOBS, TRIAL_APPLICATION, ClientProgram, SessionJob, find_jobs
from dba_console.watch.progress.readings import Operation
from dba_console.watch.samples.jobs import JobKey, JobsNow, RunningJob
from dba_console.watch.samples.postgres import Activity, Server, Sessions
from dba_console.watch.samples.sample import Part
from dba_console.watch.session_states import ACTIVE

PROGRAMS = frozenset(JOBS)
RECONNECTING = frozenset({"pg_restore", "pgcopydb", "vacuumdb", "reindexdb", "clusterdb"})
"""Programs whose first session may end before they do: a parallel pg_restore closes it before its workers start and
opens another one after them (pg_backup_archiver.c, restore_toc_entries_prefork)."""
RECONNECT_WITHIN_US = 3_000_000
"""How long such a program may run without any session."""
UNMATCHED_S = 5.0
"""New sessions of a known program are identified only by name until a scan has matched them."""
GAP_US = 5_000_000
"""A longer time between two readings is a gap: a job may have ended, and another started, unobserved."""

_Session = tuple[int, int | None]
_Name = tuple[str, str | None, str | None, str | None] | ClientProgram


@dataclass(frozen=True, slots=True)
class ObservedJobProgram:
    """A program on this host that was running at the latest scan."""

    backends: frozenset[int]
    elapsed_s: float | None
    """How long it had run then."""
    at_us: int
    """Monotonic time of that scan."""
    format: str | None = None
    """Of a dump."""


ObservedJobPrograms = Mapping[ClientProgram, ObservedJobProgram]
NO_PROGRAMS: ObservedJobPrograms = {}


@dataclass
class DetectedJob:
    """A running job."""

    key: JobKey
    pid: int
    started: int | None
    """Server's clock."""
    first_us: int
    """Monotonic time of the reading that first contained it."""
    before_s: float | None
    """How long it had run then; None if its start is unknown."""
    last_us: int
    leader: _Session
    sessions: set[_Session] = field(default_factory=set)
    owner: ClientProgram | None = None
    """Its program, if found."""
    format: str | None = None

    def elapsed_s(self, mono_us: int) -> float | None:
        """Seconds it has run at this monotonic time."""
        return None if self.before_s is None else self.before_s + (mono_us - self.first_us) / 1e6


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended."""

    key: JobKey
    elapsed_s: float | None
    """How long it had run when last observed; None if its start is unknown."""
    last_us: int
    """Monotonic time of the last reading that contained it."""
    end_unobserved: bool
    """It ended in a gap: its end is unknown."""
    owner: ClientProgram | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran; None if its start or end is unknown."""
        return None if self.end_unobserved else self.elapsed_s


class JobDetector:
    """Compares the sessions of each reading with the jobs of the previous one."""

    def __init__(self) -> None:
        self._running: dict[_Name, DetectedJob] = {}
        self._last_us: int | None = None
        self._broken = True
        self.version = 0
        """Incremented when a job starts or ends."""

    def connection_lost(self) -> None:
        """Record that the server was not connected in this tick: the end of jobs is unknown until the next reading."""
        self._broken = True

    def compare(
        self,
        sessions: Sessions,
        mono_us: int,
        programs: ObservedJobPrograms = NO_PROGRAMS,
        names: Set[str] | None = None,
    ) -> tuple[list[EndedJob], tuple[int, int] | None]:
        """Apply a reading; return the ended jobs, and the gap before it (monotonic times), if any. `names`: the
        application names of its sessions, if already known.
        """
        last_us, self._last_us = self._last_us, mono_us
        broken = self._broken or last_us is None or mono_us - last_us > GAP_US
        self._broken = False
        owners = {pid: owner for owner, live in programs.items() for pid in live.backends}
        self._assign_program_to_gone(owners, sessions)
        wanted = bool(owners) or has_job_name(application_names(sessions.rows) if names is None else names)
        found = find_jobs(sessions.rows, owners) if wanted else []
        jobs = [job for job in found if not job.leader.application.startswith(TRIAL_APPLICATION)]
        ended: list[EndedJob] = []
        if jobs or self._running:
            ended = self._compare(jobs, sessions.now_us, mono_us, broken)
            ended += self._end_missing({_name(job) for job in jobs}, mono_us, broken, programs)
            self._apply_programs(programs)
        return ended, (last_us, mono_us) if broken and last_us is not None else None

    def running(self, mono_us: int) -> list[RunningJob]:
        """Return the running jobs."""
        return [
            RunningJob(*one.key, one.pid, one.started, one.elapsed_s(mono_us), one.format)
            for one in self._running.values()
        ]

    def _compare(self, jobs: list[SessionJob], now_us: int, mono_us: int, broken: bool) -> list[EndedJob]:
        ended: list[EndedJob] = []
        names = {_name(job) for job in jobs}
        leaders = {one.leader for one in self._running.values()}
        # Jobs with a known program first: the remaining sessions of that name then belong to another job. Of several
        # jobs with one name, the one with the leader session continues; the others are new.
        for job in sorted(jobs, key=lambda job: (job.owner is None, leaders.isdisjoint(map(_session, job.sessions)))):
            name = _name(job)
            known = self._find_known(name, job, names)
            if known is not None and not _is_same_job(known, job, broken):
                ended += self._remove(name, broken)
                known = None
            if known is None:
                self._running[name] = _make_detected_job(job, now_us, mono_us, broken)
                self.version += 1
            else:
                known.last_us, known.pid, known.sessions = mono_us, job.leader.pid, set(map(_session, job.sessions))
                known.owner = job.owner or known.owner
        return ended

    def _assign_program_to_gone(self, owners: Mapping[int, ClientProgram], sessions: Sessions) -> None:
        """Assign ended sessions to the program that a scan has found for them since."""
        unclaimed = [one for one in self._running.values() if one.owner is None] if owners else []
        there = {row.pid for row in sessions.rows} if unclaimed else set()
        for one in unclaimed:
            programs = {owners.get(pid) for pid, _ in one.sessions}
            if len(programs) == 1 and not any(pid in there for pid, _ in one.sessions):
                one.owner = programs.pop()

    def _find_known(self, name: _Name, job: SessionJob, names: set[_Name]) -> DetectedJob | None:
        """Return the known job, also if it was known only by name and its program was found since."""
        if name not in self._running:
            mine = set(map(_session, job.sessions))
            for other, one in self._running.items():
                if other not in names and not one.sessions.isdisjoint(mine):
                    self._running[name] = self._running.pop(other)
                    break
        return self._running.get(name)

    def _end_missing(
        self, seen: set[_Name], mono_us: int, broken: bool, programs: ObservedJobPrograms
    ) -> list[EndedJob]:
        """End the jobs without a session: immediately, or when their program has ended too."""
        ended: list[EndedJob] = []
        for name in [name for name in self._running if name not in seen]:
            one = self._running[name]
            if one.owner is not None and (live := programs.get(one.owner)) is not None:
                one.last_us = max(one.last_us, live.at_us)
                continue
            reconnecting = one.owner is None and one.key[0] in RECONNECTING
            if broken or not reconnecting or mono_us - one.last_us >= RECONNECT_WITHIN_US:
                ended += self._remove(name, broken)
        return ended

    def _is_part(self, gone: DetectedJob) -> bool:
        """Check whether it was not a separate job but unmatched sessions of a running program."""
        known = [one for one in self._running.values() if one.owner is not None and one.key == gone.key]
        brief = (gone.elapsed_s(gone.last_us) or 0.0) < UNMATCHED_S
        return any(brief or not one.sessions.isdisjoint(gone.sessions) for one in known)

    def _apply_programs(self, programs: ObservedJobPrograms) -> None:
        """Use the program's format, and its start if known: a session may have started later."""
        for one in self._running.values():
            live = None if one.owner is None else programs.get(one.owner)
            if live is None:
                continue
            one.format = live.format
            if live.elapsed_s is not None:
                one.before_s = live.elapsed_s - (live.at_us - one.first_us) / 1e6

    def _remove(self, name: _Name, broken: bool) -> list[EndedJob]:
        one = self._running.pop(name)
        self.version += 1
        if one.owner is None and self._is_part(one):
            return []
        return [EndedJob(one.key, one.elapsed_s(one.last_us), one.last_us, broken, one.owner)]


def application_names(rows: Sequence[Activity]) -> frozenset[str]:
    """Return the distinct application names: few even with thousands of sessions, and checked every second."""
    return frozenset(row.application for row in rows)


def has_job_name(names: Set[str]) -> bool:
    """Check whether one of these names is that of a known program."""
    return not names.isdisjoint(PROGRAMS) or any(name.startswith("pgcopydb[") for name in names)


def find_possible_jobs(rows: Sequence[Activity], operations: Sequence[Operation], names: Set[str]) -> frozenset[int]:
    """Return the sessions that may belong to a job: of a program with a known name, of any program that runs COPY, and
    of psql while it is active. `names`: the application names of the sessions.
    """
    copying = {row.pid for row in operations if row.kind in ("copy", "basebackup")}
    if not copying and "psql" not in names and not has_job_name(names):
        return frozenset()
    return frozenset(
        row.pid
        for row in rows
        if row.pid in copying
        or row.application in PROGRAMS
        or (row.application == "psql" and row.state in ACTIVE)
        or row.application.startswith("pgcopydb[")
    )


def _is_same_job(known: DetectedJob, job: SessionJob, broken: bool) -> bool:
    """Check whether these are sessions of the known run, not of the next one with the same name."""
    if job.owner is not None and job.owner == known.owner:
        return True
    if job.kind == "pg_basebackup" and not known.sessions.isdisjoint(map(_session, job.sessions)):
        return True  # the session that streams WAL may end last
    if job.kind not in RECONNECTING and job.leader.backend_start is not None:
        return known.leader == _session(job.leader)
    return not broken or not known.sessions.isdisjoint(map(_session, job.sessions))


def _make_detected_job(job: SessionJob, now_us: int, mono_us: int, broken: bool) -> DetectedJob:
    """Return a job found now. After a gap, the first connection of a reconnecting program may have ended already."""
    started = job.leader.backend_start
    known = started is not None and not (broken and job.kind in RECONNECTING)
    before_s = max(0.0, (now_us - started) / 1e6) if known and started is not None else None
    key = (job.kind, job.leader.database, job.leader.user)
    sessions = set(map(_session, job.sessions))
    return DetectedJob(
        key, job.leader.pid, started if known else None, mono_us, before_s, mono_us, _session(job.leader), sessions,
        job.owner,
    )  # fmt: skip


def _name(job: SessionJob) -> _Name:
    return job.owner or (job.leader.application, job.leader.user, job.leader.database, job.leader.client)


def _session(row: Activity) -> _Session:
    return row.pid, row.backend_start


# Request and result of one scan of the programs: the tick sends the request, the lane returns the observation.


@dataclass(frozen=True, slots=True)
class ObservationRequest:
    """Input for one scan, from the tick; immutable."""

    sessions: Sessions
    operations: tuple[Operation, ...]
    server: Server | None
    conninfo: str
    here: bool
    """The server runs on this host: its backends are visible."""
    wall_us: int
    mono_us: int
    runs: Mapping[JobKey, tuple[JobRun, ...]] = field(default_factory=dict)
    """Past runs of all jobs whose programs are running."""
    shares: tuple[ReportedProgress, ...] = ()
    """Last reported percentages: they never decrease, even with a new observer."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one scan."""

    at_us: int
    """Monotonic start time."""
    took_us: int
    now: JobsNow
    part: Part
    programs: ObservedJobPrograms
    """Running programs, with their sessions."""
    ended: Mapping[ClientProgram, RunFacts]
    """Programs ended since the previous scan, with their facts."""
    cpu_us: int = 0
    """CPU time of this scan."""
