"""Jobs seen among the sessions: when one began, when it ended, and when that cannot be told.

A job ends when its sessions are gone, in a reading that follows the one that showed them. Where the server was lost or
nothing was read in between, its end is unknown, which is not "finished".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dba_console.frames.jobs import JOBS, Job, find_jobs
from dba_console.samples.jobs import JobKey, RunningJob
from dba_console.samples.postgres import Activity, Sessions

PROGRAMS = frozenset(JOBS)
RECONNECTING = frozenset({"pg_restore", "pgcopydb", "vacuumdb", "reindexdb", "clusterdb"})
"""Programs whose first session may end before they do: a parallel pg_restore gives it up for its workers and opens
another one after them (pg_backup_archiver.c, restore_toc_entries_prefork)."""
BETWEEN_US = 3_000_000
"""How long such a program may be without any session and still run."""
HOLE_US = 5_000_000
"""Readings further apart have a hole between them: a job may have ended, and another run, without being seen."""

_Session = tuple[int, int | None]
_Name = tuple[str, str | None, str | None, str | None]


@dataclass
class Watched:
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

    def elapsed_s(self, mono_us: int) -> float | None:
        """Seconds it has run at this monotonic time."""
        return None if self.before_s is None else self.before_s + (mono_us - self.first_us) / 1e6


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that is gone."""

    key: JobKey
    elapsed_s: float | None
    """How long it had run when it was last seen; None where its start is not known."""
    last_us: int
    """Monotonic time of the last reading that showed it."""
    broken: bool
    """It went while nothing was seen: its end is not known."""

    @property
    def seconds(self) -> float | None:
        """How long it ran; None where its start or its end is not known."""
        return None if self.broken else self.elapsed_s


class JobWatch:
    """Compares the sessions of each reading with the jobs known from the one before."""

    def __init__(self) -> None:
        self._running: dict[_Name, Watched] = {}
        self._last_us: int | None = None
        self._broken = True
        self.version = 0
        """Counts the jobs that began and ended."""

    def lost(self) -> None:
        """The server was not connected in this tick: what ends before the next reading, ends unseen."""
        self._broken = True

    def see(self, sessions: Sessions, mono_us: int) -> tuple[list[Ended], tuple[int, int] | None]:
        """Take a reading in: the jobs that are gone, and the hole before it (monotonic times) where there was one."""
        last_us, self._last_us = self._last_us, mono_us
        broken = self._broken or last_us is None or mono_us - last_us > HOLE_US
        self._broken = False
        jobs = find_jobs(sessions.rows) if _any_job(sessions.rows) else []
        ended = self._compare(jobs, sessions.now_us, mono_us, broken) if jobs or self._running else []
        return ended, (last_us, mono_us) if broken and last_us is not None else None

    def running(self, mono_us: int) -> list[RunningJob]:
        """The jobs under way."""
        return [RunningJob(*one.key, one.pid, one.started, one.elapsed_s(mono_us)) for one in self._running.values()]

    def _compare(self, jobs: list[Job], now_us: int, mono_us: int, broken: bool) -> list[Ended]:
        ended: list[Ended] = []
        seen: set[_Name] = set()
        for job in jobs:
            name = _name(job)
            seen.add(name)
            known = self._running.get(name)
            if known is not None and not _goes_on(known, job, broken):
                ended.append(self._end(name, broken))
                known = None
            if known is None:
                self._running[name] = _begun(job, now_us, mono_us, broken)
                self.version += 1
            else:
                known.last_us, known.pid, known.sessions = mono_us, job.leader.pid, set(map(_session, job.sessions))
        for name in [name for name in self._running if name not in seen]:
            one = self._running[name]
            if broken or one.key[0] not in RECONNECTING or mono_us - one.last_us >= BETWEEN_US:
                ended.append(self._end(name, broken))
        return ended

    def _end(self, name: _Name, broken: bool) -> Ended:
        one = self._running.pop(name)
        self.version += 1
        return Ended(one.key, one.elapsed_s(one.last_us), one.last_us, broken)


def _any_job(rows: list[Activity]) -> bool:
    # Asked of every session each second: the names first, of which there are few.
    names = {row.application for row in rows}
    return not names.isdisjoint(PROGRAMS) or any(name.startswith("pgcopydb[") for name in names)


def _goes_on(known: Watched, job: Job, broken: bool) -> bool:
    """Whether these are sessions of the run known, and not of the next one under the same name."""
    if job.kind not in RECONNECTING and job.leader.backend_start is not None:
        return known.leader == _session(job.leader)
    return not broken or not known.sessions.isdisjoint(map(_session, job.sessions))


def _begun(job: Job, now_us: int, mono_us: int, broken: bool) -> Watched:
    """A job first seen now. One of several connections that ran already may have begun with one that is gone."""
    started = job.leader.backend_start
    known = started is not None and not (broken and job.kind in RECONNECTING)
    before_s = max(0.0, (now_us - started) / 1e6) if known and started is not None else None
    key = (job.kind, job.leader.database, job.leader.user)
    sessions = set(map(_session, job.sessions))
    return Watched(
        key, job.leader.pid, started if known else None, mono_us, before_s, mono_us, _session(job.leader), sessions
    )


def _name(job: Job) -> _Name:
    return job.leader.application, job.leader.user, job.leader.database, job.leader.client


def _session(row: Activity) -> _Session:
    return row.pid, row.backend_start
