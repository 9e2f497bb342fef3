"""The jobs' side of the agent: fed with each reading of the sessions, gives the parts `jobs` and `jobs.now`, and tells
what ended.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from msgspec import structs

from dba_console.agent.server_service import ServerService
from dba_console.core.clock import Clock
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.target import address_of
from dba_console.core.units import human_duration
from dba_console.jobs.following.job_detection import (
    NO_PROGRAMS,
    EndedJob,
    JobDetector,
    Observation,
    ObservationRequest,
    ObservedJobPrograms,
    application_names,
    find_possible_jobs,
)
from dba_console.jobs.history.history_files import HistoryFile, history_path
from dba_console.jobs.history.job_history import JobHistory, KeptHistory, KeptServer, ReportedProgress
from dba_console.jobs.history.past_runs import RunFacts, limit_phases
from dba_console.watch.frames.job_sessions import ClientProgram, job_name
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout, PendingCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import JobKey, Jobs
from dba_console.watch.samples.postgres import Sessions
from dba_console.watch.samples.sample import PARTS, Part, make_part

# When the programs behind the sessions are looked at, and in which lane: the tick starts a look and never waits.
#
# What looks is loaded with the first job: an agent that watches none carries none of it. A look that hangs, with a
# dead mount under a dump, is abandoned with all that was known of the jobs; what is then not known any more is said.

EVERY_US = 2_000_000
PAUSE_FACTOR = 20
"""A look is followed by a pause of so many times what it took: five percent of one processor at most."""
MIN_PAUSE_US = 150_000
"""A look that is asked for at once comes no sooner than this after the last one."""
MIN_PAUSE_FACTOR = 4
"""Nor sooner than so many times what that one took: sessions may come and go each second for hours."""
OBSERVATION_TIMEOUT_US = 20_000_000
"""A look that takes longer is abandoned."""


class JobObserverApi(Protocol):
    """What looks, again and again, in the lane; it remembers what it saw."""

    def observe(self, question: ObservationRequest) -> Observation: ...


def _tracker(clock: Clock) -> JobObserverApi:
    from dba_console.jobs.following.job_observer import JobObserver

    return JobObserver(clock)


class ObserverLane:
    """Used by the tick alone."""

    def __init__(self, clock: Clock, eye: Callable[[Clock], JobObserverApi] = _tracker) -> None:
        self._clock, self._make = clock, eye
        self._lane = Lane("programs", clock)
        self._observer: JobObserverApi | None = None
        self._pending: PendingCall[Observation] | None = None
        self._begun_us = 0
        self._next_us = 0
        self._soonest_us = 0
        """A look that is asked for at once may begin."""
        self._requested_soon = False
        self.idle = True
        """The last look found no job."""
        self.error: str | None = None
        """Why nothing is known of the programs now."""

    @property
    def stuck(self) -> int:
        return self._lane.stuck

    def request_soon(self) -> None:
        """Sessions of a job came or went: look at once."""
        self._requested_soon = True

    def tick(self, ask: Callable[[], ObservationRequest], *, wanted: bool) -> Observation | None:
        """The look that ended since, and begin the next one where it is due: while there are jobs, or there may be."""
        look = self._collect()
        if self._pending is None and (wanted or not self.idle):
            self._begin(ask)
        return look

    def close(self) -> None:
        self._lane.close()

    def _collect(self) -> Observation | None:
        if self._pending is None:
            return None
        now_us = self._clock.mono_us()
        if not self._pending.ready(0):
            if now_us - self._begun_us > OBSERVATION_TIMEOUT_US:
                self._fail("does not end: a file system or a process of theirs hangs")
                self._lane.abandon()
            return None
        pending, self._pending = self._pending, None
        try:
            look = pending.result(0)
        except Exception as error:  # whatever a host may hold: it costs what is known of programs and no more
            self._fail(f"failed: {type(error).__name__}: {error}")
            return None
        self.error, self.idle = None, not look.now.jobs
        self._soonest_us = now_us + max(MIN_PAUSE_US, MIN_PAUSE_FACTOR * look.took_us)
        self._next_us = now_us + max(EVERY_US - (now_us - self._begun_us), PAUSE_FACTOR * look.took_us)
        return look

    def _begin(self, ask: Callable[[], ObservationRequest]) -> None:
        now_us = self._clock.mono_us()
        if now_us < self._next_us and not (self._requested_soon and now_us >= self._soonest_us):
            return
        question = ask()
        try:
            self._pending = self._lane.start(lambda: self._observe(question))
        except LaneTimeout:
            self._fail("does not end: its lanes hang")
            return
        self._begun_us, self._requested_soon = now_us, False

    def _observe(self, question: ObservationRequest) -> Observation:
        if self._observer is None:
            self._observer = self._make(self._clock)
        return self._observer.observe(question)

    def _fail(self, why: str) -> None:
        self._pending, self._observer = None, None
        self._next_us = self._soonest_us = self._clock.mono_us() + 5 * EVERY_US
        self.error = f"the look at the programs of dumps and restores {why}"


# What is told of a job that ended, and of the file that could not be read. Pure.


def ended_event(
    one: EndedJob, usual_s: float | None, wall_us: int, mono_us: int, told: RunFacts | None = None
) -> Event:
    """The event of a job's end. Whether it succeeded is not known to who only saw its sessions: `ok` is None.

    Times in the details are host wall times; None where the beginning or the end was not seen. `told` is what its
    program was seen to do.
    """
    kind, database, user = one.key
    last_us = wall_us - (mono_us - one.last_us)
    started_us = None if one.elapsed_s is None else last_us - int(one.elapsed_s * 1e6)
    details = {
        "kind": kind,
        "database": database,
        "user": user,
        "started_us": started_us,
        "ended_us": None if one.end_unobserved else last_us,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "ok": None if told is None else told.whole,
        **({} if told is None else _details(told)),
    }
    text = redact(_sentence(one, usual_s, (mono_us - one.last_us) / 1e6, told))
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.ended", text=text, details=details)


def _details(told: RunFacts) -> dict[str, object]:
    known = {name: value for name, value in structs.asdict(told).items() if value is not None and name != "whole"}
    known["phases"] = {phase.name: round(phase.wall_s, 3) for phase in told.phases}
    return known


def history_error_event(text: str, wall_us: int, mono_us: int) -> Event:
    """The event of a history that cannot be read or written."""
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.history", severity="warning", text=redact(clean(text)))


def _sentence(one: EndedJob, usual_s: float | None, unseen_s: float, told: RunFacts | None) -> str:
    name = job_name(one.key[0], one.key[1])
    if one.end_unobserved:
        return f"{name} is gone: when it ended is not known, for nothing was seen for {human_duration(unseen_s)}"
    if one.seconds is None:
        return f"{name} ended; when it began is not known"
    usual = "" if usual_s is None else f", usual {human_duration(usual_s)}"
    return f"{name} ended after {human_duration(one.seconds)}{usual}{_phases(told)}; {_outcome(told)}"


def _phases(told: RunFacts | None) -> str:
    """Wall time of each phase that took any."""
    took = [] if told is None else [phase for phase in told.phases if phase.wall_s > 0]
    words = ", ".join(f"{phase.name} {human_duration(phase.wall_s)}" for phase in took)
    return f" ({words})" if words else ""


def _outcome(told: RunFacts | None) -> str:
    if told is None or (told.whole is None and not told.errors):
        return "whether it succeeded is not known here"
    if told.whole is None:
        return f"{_errors(told)}, whether it went on is not known here"
    if not told.whole:
        ended = "" if told.exit is None else f", exit {told.exit}"
        return f"it failed{ended}" + (f": {clean(told.last_error)}" if told.last_error else "")
    return f"it went through, with {_errors(told)}" if told.errors else "it succeeded"


def _errors(told: RunFacts) -> str:
    return f"{told.errors} error{'' if told.errors == 1 else 's'}"


PART = "jobs"
OBSERVATION_MAX_AGE_US = 15_000_000
"""What a look found that is older holds no longer: whether a program goes on is then told from its sessions."""
SHARES_WRITE_INTERVAL_US = 60_000_000
MAX_ENDED_PROGRAMS = 50
"""Programs that ended whose sessions may still be seen."""


class JobService:
    """Used by the tick alone; costs a look at the sessions' names while no job runs. Without `keep` the history of jobs
    is read and not written."""

    def __init__(self, target_key: str, server: ServerService, clock: Clock, *, keep: bool = True) -> None:
        self._server, self._clock = server, clock
        self._watch = JobDetector()
        self._history = JobHistory(clock.mono_us())
        address = address_of(server.conninfo)
        self._history_file = HistoryFile(history_path(target_key), clock, address, keep=keep)
        self._server_identity = KeptServer(address.server)
        self._observer = ObserverLane(clock)
        self._newest: Observation | None = None
        self._run_facts: dict[ClientProgram, RunFacts] = {}
        self._shares: tuple[ReportedProgress, ...] = ()
        """What was last said of the jobs under way."""
        self._previous_shares: tuple[ReportedProgress, ...] = ()
        """What the agent before this one said last."""
        self._kept_us = 0
        self._job_sessions: frozenset[int] = frozenset()
        """Sessions of jobs, as last seen."""
        self._sessions: Sessions | None = None
        self._changed = True
        """Since the part was last given."""
        self._unsaved = False
        self._sent_us = 0
        self._trouble: str | None = None
        self._events: list[Event] = []

    @property
    def is_waiting_for_observation(self) -> bool:
        """A session may be that of a job, and no look at the programs has ended yet."""
        return bool(self._job_sessions) and self._newest is None and self._observer.error is None

    @property
    def stuck(self) -> int:
        """Threads that hang with a program's files."""
        return self._observer.stuck

    def tick(self) -> list[Part]:
        """Look at what was read; the parts, where they are due or something changed."""
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        names = application_names(() if self._server.sessions is None else self._server.sessions.rows)
        parts = self._observe_programs(names)
        self._compare_sessions(wall_us, mono_us, names)
        if self._sessions is None:
            return parts
        self._sync_history_file(wall_us, mono_us)
        if not self._changed and mono_us - self._sent_us < PARTS[PART].every_s * 1_000_000:
            return parts
        self._changed, self._sent_us = False, mono_us
        jobs = Jobs(wall_us, self._history.past_jobs(wall_us, mono_us), self._watch.running(mono_us))
        return [*parts, make_part(PART, jobs, at_us=mono_us, note=self._trouble)]

    def events(self) -> list[Event]:
        """What happened since last asked."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Write what is known; a disk that does not answer is waited for a second."""
        self._observer.close()
        self._history_file.close(self._file_record() if self._history or self._shares else None)

    def _observe_programs(self, names: Set[str]) -> list[Part]:
        """Take what a look found, and begin the next one where a session may be that of a job."""
        sessions, trouble = self._server.sessions, self._observer.error
        rows = [] if sessions is None or not self._server.connected else sessions.rows
        operations = self._server.operations
        mine = find_possible_jobs(rows, [] if operations is None else operations.rows, names)
        if mine != self._job_sessions:
            self._observer.request_soon()
        self._job_sessions = mine
        look = self._observer.tick(self._observation_request, wanted=bool(mine))
        if look is not None:
            self._newest = look
            self._shares = tuple(
                ReportedProgress(job.kind, job.pid, job.started_us, job.pct)
                for job in look.now.jobs
                if job.pid is not None and job.started_us is not None and job.pct is not None
            )
            self._run_facts = dict([*self._run_facts.items(), *look.ended.items()][-MAX_ENDED_PROGRAMS:])
            return [look.part]
        if self._observer.error is not None and self._observer.error != trouble:
            return [make_part("jobs.now", None, at_us=self._clock.mono_us(), status="error", note=self._observer.error)]
        return []

    def _observation_request(self) -> ObservationRequest:
        assert self._server.sessions is not None
        operations, locality = self._server.operations, self._server.locality
        return ObservationRequest(
            self._server.sessions,
            () if operations is None else tuple(operations.rows),
            self._server.server,
            self._server.conninfo,
            here=locality is not None and locality.local is True,
            wall_us=self._clock.wall_us(),
            mono_us=self._clock.mono_us(),
            runs=self._history.runs({kind for kind, _, _ in self._running()}),
            shares=(*self._previous_shares, *self._shares),
        )

    @property
    def _programs(self) -> ObservedJobPrograms:
        newest = self._newest
        return (
            NO_PROGRAMS
            if newest is None or self._clock.mono_us() - newest.at_us > OBSERVATION_MAX_AGE_US
            else newest.programs
        )

    def _compare_sessions(self, wall_us: int, mono_us: int, names: Set[str]) -> None:
        if not self._server.connected:
            self._watch.connection_lost()
        sessions = self._server.sessions
        if sessions is None or sessions is self._sessions:
            return
        self._sessions = sessions
        version = self._watch.version
        ended, hole = self._watch.compare(sessions, mono_us, self._programs, names)
        if hole is not None:
            self._history.add_gap(*hole, [one.key for one in ended])
            self._changed = True
        for one in ended:
            self._record_end(one, wall_us, mono_us)
        if version != self._watch.version:
            self._changed = self._unsaved = True

    def _record_end(self, one: EndedJob, wall_us: int, mono_us: int) -> None:
        told = None if one.owner is None else self._run_facts.pop(one.owner, None)
        if told is not None and one.seconds is not None:
            told = limit_phases(told, one.seconds)
        usual_s = self._history.typical_s(one.key, None if told is None else told.source)
        self._events.append(ended_event(one, usual_s, wall_us, mono_us, told))
        if one.seconds is not None:
            self._history.add_run(one.key, one.seconds, one.last_us, wall_us, mono_us, told)

    def _sync_history_file(self, wall_us: int, mono_us: int) -> None:
        """See to the file: read it first, then keep it."""
        self._identify()
        if not self._history_file.loaded:
            kept = self._history_file.read(self._server_identity)
            if kept is not None:
                self._history.restore(kept, self._running(), wall_us, mono_us)
                self._previous_shares = tuple(kept.shares)
                self._changed = True
                self._unsaved = True  # what other targets of the server kept is now this one's too
        elif (self._history or self._shares) and self._history_file.write(
            self._file_record, now=self._unsaved or self._due(mono_us)
        ):
            self._unsaved, self._kept_us = False, mono_us
        if self._trouble != (trouble := self._history_file.error):
            self._trouble, self._changed = trouble, True
            if trouble is not None:
                self._events.append(history_error_event(trouble, wall_us, mono_us))

    def _identify(self) -> None:
        """Which server this is, as far as it has told while connected."""
        server, locality = self._server.server, self._server.locality
        if server is not None and locality is not None:
            directory = server.data_directory if locality.local else None
            self._server_identity = KeptServer(self._server_identity.address, server.system_identifier, directory)

    def _due(self, mono_us: int) -> bool:
        """While a job is under way, how far it is said to be is kept each minute."""
        return bool(self._shares) and mono_us - self._kept_us > SHARES_WRITE_INTERVAL_US

    def _file_record(self) -> KeptHistory:
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        return self._history.to_file_record(self._running(), wall_us, mono_us, self._shares, self._server_identity)

    def _running(self) -> list[JobKey]:
        return [job.key for job in self._watch.running(self._clock.mono_us())]
