"""Jobs seen among the sessions: when one began, when it ended, and when that cannot be told.

A job ends when its sessions are gone, in a reading that follows the one that showed them; where its program was found
on this host, when that is gone too. Where the server was lost or nothing was read in between, its end is unknown, which
is not "finished".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from dba_console.jobs.history.job_history import ReportedProgress
from dba_console.jobs.history.past_runs import JobRun, RunFacts
from dba_console.watch.frames.connections import ACTIVE
from dba_console.watch.frames.job_sessions import JOBS, TRIAL_APPLICATION, ClientProgram, SessionJob, find_jobs
from dba_console.watch.samples.jobs import JobKey, JobsNow, RunningJob
from dba_console.watch.samples.postgres import Activity, Operation, Server, Sessions
from dba_console.watch.samples.sample import Part

PROGRAMS = frozenset(JOBS)
RECONNECTING = frozenset({"pg_restore", "pgcopydb", "vacuumdb", "reindexdb", "clusterdb"})
"""Programs whose first session may end before they do: a parallel pg_restore gives it up for its workers and opens
another one after them (pg_backup_archiver.c, restore_toc_entries_prefork)."""
RECONNECT_WITHIN_US = 3_000_000
"""How long such a program may be without any session and still run."""
UNMATCHED_S = 5.0
"""New sessions of a program that is known are known by their name alone until a look has found whose they are."""
GAP_US = 5_000_000
"""Readings further apart have a hole between them: a job may have ended, and another run, without being seen."""

_Session = tuple[int, int | None]
_Name = tuple[str, str | None, str | None, str | None] | ClientProgram


@dataclass(frozen=True, slots=True)
class ObservedJobProgram:
    """A program on this host that was under way at the newest look."""

    backends: frozenset[int]
    elapsed_s: float | None
    """How long it ran then."""
    at_us: int
    """Monotonic time of that look."""


ObservedJobPrograms = Mapping[ClientProgram, ObservedJobProgram]
NO_PROGRAMS: ObservedJobPrograms = {}


@dataclass
class DetectedJob:
    """A job under way, as first seen."""

    key: JobKey
    pid: int
    started: int | None
    """Server's clock."""
    first_us: int
    """Monotonic time of the reading that first showed it."""
    before_s: float | None
    """How long it had run then; None where its start is not known."""
    last_us: int
    leader: _Session
    sessions: set[_Session] = field(default_factory=set)
    owner: ClientProgram | None = None
    """Its program, where that was found."""

    def elapsed_s(self, mono_us: int) -> float | None:
        """Seconds it has run at this monotonic time."""
        return None if self.before_s is None else self.before_s + (mono_us - self.first_us) / 1e6


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that is gone."""

    key: JobKey
    elapsed_s: float | None
    """How long it had run when it was last seen; None where its start is not known."""
    last_us: int
    """Monotonic time of the last reading that showed it."""
    end_unobserved: bool
    """It went while nothing was seen: its end is not known."""
    owner: ClientProgram | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran; None where its start or its end is not known."""
        return None if self.end_unobserved else self.elapsed_s


class JobDetector:
    """Compares the sessions of each reading with the jobs known from the one before."""

    def __init__(self) -> None:
        self._running: dict[_Name, DetectedJob] = {}
        self._last_us: int | None = None
        self._broken = True
        self.version = 0
        """Counts the jobs that began and ended."""

    def connection_lost(self) -> None:
        """The server was not connected in this tick: what ends before the next reading, ends unseen."""
        self._broken = True

    def compare(
        self,
        sessions: Sessions,
        mono_us: int,
        programs: ObservedJobPrograms = NO_PROGRAMS,
        names: Set[str] | None = None,
    ) -> tuple[list[EndedJob], tuple[int, int] | None]:
        """Take a reading in: the jobs that are gone, and the hole before it (monotonic times) where there was one.
        `names`: those of its sessions, where they are known already.
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
            self._adjust_start(programs)
        return ended, (last_us, mono_us) if broken and last_us is not None else None

    def running(self, mono_us: int) -> list[RunningJob]:
        """The jobs under way."""
        return [RunningJob(*one.key, one.pid, one.started, one.elapsed_s(mono_us)) for one in self._running.values()]

    def _compare(self, jobs: list[SessionJob], now_us: int, mono_us: int, broken: bool) -> list[EndedJob]:
        ended: list[EndedJob] = []
        names = {_name(job) for job in jobs}
        leaders = {one.leader for one in self._running.values()}
        # Those whose program is found go first: what is left of a job known by name is then seen to be another's. Of
        # several that were known by one name, the one with the leader goes on; the rest begin.
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
        """Sessions of which a look has found the program since, and that are gone by now, were that program's."""
        unclaimed = [one for one in self._running.values() if one.owner is None] if owners else []
        there = {row.pid for row in sessions.rows} if unclaimed else set()
        for one in unclaimed:
            whose = {owners.get(pid) for pid, _ in one.sessions}
            if len(whose) == 1 and not any(pid in there for pid, _ in one.sessions):
                one.owner = whose.pop()

    def _find_known(self, name: _Name, job: SessionJob, names: set[_Name]) -> DetectedJob | None:
        """The run known of it, also where it was known by its name alone and its program has been found since."""
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
        """End those without a session: at once, or as soon as their program is gone too."""
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
        """Whether it was no run of its own but sessions of a program under way, not yet seen to be that one's."""
        known = [one for one in self._running.values() if one.owner is not None and one.key == gone.key]
        brief = (gone.elapsed_s(gone.last_us) or 0.0) < UNMATCHED_S
        return any(brief or not one.sessions.isdisjoint(gone.sessions) for one in known)

    def _adjust_start(self, programs: ObservedJobPrograms) -> None:
        """Count from the program's start where that is known: a session may be younger."""
        for one in self._running.values():
            live = None if one.owner is None else programs.get(one.owner)
            if live is not None and live.elapsed_s is not None:
                one.before_s = live.elapsed_s - (live.at_us - one.first_us) / 1e6

    def _remove(self, name: _Name, broken: bool) -> list[EndedJob]:
        one = self._running.pop(name)
        self.version += 1
        if one.owner is None and self._is_part(one):
            return []
        return [EndedJob(one.key, one.elapsed_s(one.last_us), one.last_us, broken, one.owner)]


def application_names(rows: Sequence[Activity]) -> frozenset[str]:
    """By which names the sessions go. Of thousands of sessions there are few, and whether one of them is that of a job
    is asked each second.
    """
    return frozenset(row.application for row in rows)


def has_job_name(names: Set[str]) -> bool:
    """Whether one of these names is that of a program that is known."""
    return not names.isdisjoint(PROGRAMS) or any(name.startswith("pgcopydb[") for name in names)


def find_possible_jobs(rows: Sequence[Activity], operations: Sequence[Operation], names: Set[str]) -> frozenset[int]:
    """Sessions that may be those of a job: of a program known by its name, of one that copies under whatever name, and
    of psql while it works. `names`: those of the sessions.
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
    """Whether these are sessions of the run known, and not of the next one under the same name."""
    if job.owner is not None and job.owner == known.owner:
        return True
    if job.kind == "pg_basebackup" and not known.sessions.isdisjoint(map(_session, job.sessions)):
        return True  # the session that streams its WAL may be the last one
    if job.kind not in RECONNECTING and job.leader.backend_start is not None:
        return known.leader == _session(job.leader)
    return not broken or not known.sessions.isdisjoint(map(_session, job.sessions))


def _make_detected_job(job: SessionJob, now_us: int, mono_us: int, broken: bool) -> DetectedJob:
    """A job first seen now. One of several connections that ran already may have begun with one that is gone."""
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


# A look at the programs behind the sessions: what the tick asks, and what the lane answers. Declarations only.


@dataclass(frozen=True, slots=True)
class ObservationRequest:
    """What the tick knows; nothing in it is changed any more."""

    sessions: Sessions
    operations: tuple[Operation, ...]
    server: Server | None
    conninfo: str
    here: bool
    """The server runs on this host: its sessions' processes are ours to see."""
    wall_us: int
    mono_us: int
    runs: Mapping[JobKey, tuple[JobRun, ...]] = field(default_factory=dict)
    """Runs before, of all jobs whose programs are under way."""
    shares: tuple[ReportedProgress, ...] = ()
    """What was last said of them: none goes back, whoever looks."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was found."""

    at_us: int
    """Monotonic time at which it began."""
    took_us: int
    now: JobsNow
    part: Part
    programs: ObservedJobPrograms
    """Programs under way, with their sessions."""
    ended: Mapping[ClientProgram, RunFacts]
    """Programs that are gone since the look before, with what was known of them."""
