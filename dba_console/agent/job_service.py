"""The job service: detects dumps and restores, makes the parts `jobs` and `jobs.now`, reports when jobs end."""

from __future__ import annotations

from collections.abc import Callable, Set

from msgspec import structs

from dba_console.agent.server_service import ServerService
from dba_console.agent.source import TickSource
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
from dba_console.jobs.history.history_files import HistoryFile, HistoryServer
from dba_console.jobs.history.kept_history import JobHistory, KeptHistory, ReportedProgress
from dba_console.jobs.history.run_statistics import RunFacts, limit_phases
from dba_console.watch.job_sessions import ClientProgram, job_name
from dba_console.watch.probes.deadline_lane import LaneTimeout, PolledCall
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import JobKey, Jobs
from dba_console.watch.samples.postgres import Sessions
from dba_console.watch.samples.sample import PARTS, Part, make_part

# Observing the programs behind the sessions, in a lane: the tick starts an observation and never waits for it.
#
# The observer is loaded with the first job, so an agent without jobs does not carry it. An observation that hangs (a
# dead mount under a dump) is abandoned with all that was known of the jobs; the error says so.

EVERY_US = 2_000_000
PAUSE_FACTOR = 20
"""Pause after an observation, as a multiple of its CPU time: at most five percent of one processor."""
MAX_PAUSE_US = 10_000_000
"""Longest such pause: one observation that reads a huge table of contents must not freeze what is shown."""
MIN_PAUSE_US = 150_000
"""Minimum pause before an observation requested at once."""
MIN_PAUSE_FACTOR = 4
"""Minimum pause as a multiple of the last observation's CPU time: session churn may last for hours."""
OBSERVATION_TIMEOUT_US = 20_000_000
"""A longer observation is abandoned."""


Observe = Callable[[ObservationRequest], Observation]
"""One scan by an observer, which remembers what it has observed."""


def _make_observer(clock: Clock) -> Observe:
    from dba_console.jobs.following.job_observer import JobObserver

    return JobObserver(clock).observe


class ObserverLane:
    """Runs observations in a lane. Used by the tick only."""

    def __init__(self, clock: Clock, make_observer: Callable[[Clock], Observe] = _make_observer) -> None:
        self._clock, self._make = clock, make_observer
        self.call: PolledCall[Observation] = PolledCall("programs", clock, OBSERVATION_TIMEOUT_US)
        self._observer: Observe | None = None
        self._next_us = 0
        self._soonest_us = 0
        """Earliest start of an observation requested at once."""
        self._requested_soon = False
        self.idle = True
        """The last observation found no job."""
        self.error: str | None = None
        """Why the programs are unknown now."""

    def request_soon(self) -> None:
        """Request an observation at once, because sessions of a job came or went."""
        self._requested_soon = True

    def tick(self, ask: Callable[[], ObservationRequest], *, wanted: bool) -> Observation | None:
        """Return the observation that ended, and start the next one if it is due and there may be jobs."""
        observation = self._collect()
        if not self.call.pending and (wanted or not self.idle):
            self._begin(ask)
        return observation

    def _collect(self) -> Observation | None:
        if not self.call.ended():
            return None
        try:
            observation = self.call.take()
        except LaneTimeout:
            self._fail("does not end: a file system or one of the processes hangs")
            return None
        except Exception as error:  # whatever the host holds: only the observation is lost
            self._fail(f"failed: {type(error).__name__}: {error}")
            return None
        self.error, self.idle = None, not observation.now.jobs
        now_us = self._clock.mono_us()
        self._soonest_us = now_us + max(MIN_PAUSE_US, min(MAX_PAUSE_US, MIN_PAUSE_FACTOR * observation.cpu_us))
        pause_us = min(MAX_PAUSE_US, PAUSE_FACTOR * observation.cpu_us)
        self._next_us = now_us + max(EVERY_US - (now_us - self.call.started_us), pause_us)
        return observation

    def _begin(self, ask: Callable[[], ObservationRequest]) -> None:
        now_us = self._clock.mono_us()
        if now_us < self._next_us and not (self._requested_soon and now_us >= self._soonest_us):
            return
        request = ask()
        if self.call.start(lambda: self._observe(request), now_us):
            self._requested_soon = False
        else:
            self._fail("does not end: its threads hang")

    def _observe(self, request: ObservationRequest) -> Observation:
        if self._observer is None:
            self._observer = self._make(self._clock)
        return self._observer(request)

    def _fail(self, why: str) -> None:
        self._observer = None
        self._next_us = self._soonest_us = self._clock.mono_us() + 5 * EVERY_US
        self.error = f"the observation of dump and restore programs {why}"


# Events of an ended job and of an unreadable history file. Pure.


def ended_event(
    one: EndedJob, usual_s: float | None, wall_us: int, mono_us: int, facts: RunFacts | None = None
) -> Event:
    """Return the event of a job's end. Sessions alone do not show whether it succeeded: `ok` is then None.

    Times in the details are host wall times; None if the start or the end was not observed. `facts` is what was
    observed of its program.
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
        "ok": None if facts is None else facts.whole,
        **({} if facts is None else _details(facts)),
    }
    text = redact(_sentence(one, usual_s, (mono_us - one.last_us) / 1e6, facts))
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.ended", text=text, details=details)


def _details(facts: RunFacts) -> dict[str, object]:
    known = {name: value for name, value in structs.asdict(facts).items() if value is not None and name != "whole"}
    known["phases"] = {phase.name: round(phase.wall_s, 3) for phase in facts.phases}
    return known


def history_error_event(text: str, wall_us: int, mono_us: int) -> Event:
    """Return the event of a history that cannot be read or written."""
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.history", severity="warning", text=redact(clean(text)))


def _sentence(one: EndedJob, usual_s: float | None, unobserved_s: float, facts: RunFacts | None) -> str:
    name = job_name(one.key[0], one.key[1])
    if one.end_unobserved:
        return (
            f"{name} is gone: its end time is unknown, because nothing was observed for {human_duration(unobserved_s)}"
        )
    if one.seconds is None:
        return f"{name} ended; its start time is unknown"
    typical = "" if usual_s is None else f", typical {human_duration(usual_s)}"
    return f"{name} ended after {human_duration(one.seconds)}{typical}{_phases(facts)}; {_outcome(facts)}"


def _phases(facts: RunFacts | None) -> str:
    """Return the wall time of each phase that took any."""
    took = [] if facts is None else [phase for phase in facts.phases if phase.wall_s > 0]
    text = ", ".join(f"{phase.name} {human_duration(phase.wall_s)}" for phase in took)
    return f" ({text})" if text else ""


def _outcome(facts: RunFacts | None) -> str:
    if facts is None or (facts.whole is None and not facts.errors):
        return "its result is unknown here"
    if facts.whole is None:
        return f"{_errors(facts)}; unknown whether it continued"
    if not facts.whole:
        ended = "" if facts.exit is None else f", exit {facts.exit}"
        return f"it failed{ended}" + (f": {clean(facts.last_error)}" if facts.last_error else "")
    return f"it ended, with {_errors(facts)}" if facts.errors else "it succeeded"


def _errors(facts: RunFacts) -> str:
    return f"{facts.errors} error{'' if facts.errors == 1 else 's'}"


PART = "jobs"
OBSERVATION_MAX_AGE_US = 15_000_000
"""Maximum age of an observation: after that, whether a program still runs is decided by its sessions."""
SHARES_WRITE_INTERVAL_US = 60_000_000
MAX_ENDED_PROGRAMS = 50
"""Ended programs kept because their sessions may still be listed."""


class JobService(TickSource):
    """Detects and records jobs. Used by the tick only; without a job it only checks session names. Without `keep` the
    job history is read but not written."""

    def __init__(self, target_key: str, server: ServerService, clock: Clock, *, keep: bool = True) -> None:
        self._server, self._clock = server, clock
        self._watch = JobDetector()
        self._history = JobHistory(clock.mono_us())
        self._target_key, self._keep = target_key, keep
        self._history_file: HistoryFile | None = None
        """Of the server that was identified first."""
        self._observer = ObserverLane(clock)
        super().__init__(self._observer.call)
        self._newest: Observation | None = None
        self._run_facts: dict[ClientProgram, RunFacts] = {}
        self._shares: tuple[ReportedProgress, ...] = ()
        """Last reported progress of the running jobs."""
        self._previous_shares: tuple[ReportedProgress, ...] = ()
        """Last progress reported by the previous agent."""
        self._kept_us = 0
        self._job_sessions: frozenset[int] = frozenset()
        """Sessions of jobs in the last reading."""
        self._sessions: Sessions | None = None
        self._changed = True
        """Since the part was last sent."""
        self._unsaved = False
        self._sent_us = 0
        self._trouble: str | None = None
        self._events: list[Event] = []

    @property
    def is_waiting_for_observation(self) -> bool:
        """A session may belong to a job, and no observation of the programs has ended yet."""
        return bool(self._job_sessions) and self._newest is None and self._observer.error is None

    def finish(self, until_us: int) -> list[Part]:
        """Process the last reading; return the parts that are due or changed."""
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
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Write the history; waits at most a second for the disk."""
        super().close()
        if self._history_file is not None:
            self._history_file.close(self._file_record() if self._history or self._shares else None)

    def _observe_programs(self, names: Set[str]) -> list[Part]:
        """Use the observation that ended, and start the next one if a session may belong to a job."""
        sessions, error = self._server.sessions, self._observer.error
        rows = [] if sessions is None or not self._server.connected else sessions.rows
        operations = self._server.operations
        job_sessions = find_possible_jobs(rows, [] if operations is None else operations.rows, names)
        if job_sessions != self._job_sessions:
            self._observer.request_soon()
        self._job_sessions = job_sessions
        observation = self._observer.tick(self._observation_request, wanted=bool(job_sessions))
        if observation is not None:
            self._newest = observation
            self._shares = tuple(
                ReportedProgress(job.kind, job.pid, job.started_us, job.pct)
                for job in observation.now.jobs
                if job.pid is not None and job.started_us is not None and job.pct is not None
            )
            self._run_facts = dict([*self._run_facts.items(), *observation.ended.items()][-MAX_ENDED_PROGRAMS:])
            return [observation.part]
        if self._observer.error is not None and self._observer.error != error:
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
        ended, gap = self._watch.compare(sessions, mono_us, self._programs, names)
        if gap is not None:
            self._history.add_gap(*gap, [one.key for one in ended])
            self._changed = True
        for one in ended:
            self._record_end(one, wall_us, mono_us)
        if version != self._watch.version:
            self._changed = self._unsaved = True

    def _record_end(self, one: EndedJob, wall_us: int, mono_us: int) -> None:
        facts = None if one.owner is None else self._run_facts.pop(one.owner, None)
        if facts is not None and one.seconds is not None:
            facts = limit_phases(facts, one.seconds)
        source, form = (None, None) if facts is None else (facts.source, facts.format)
        usual_s = self._history.typical_s(one.key, source, form)
        self._events.append(ended_event(one, usual_s, wall_us, mono_us, facts))
        if one.seconds is not None:
            self._history.add_run(one.key, one.seconds, one.last_us, wall_us, mono_us, facts)

    def _sync_history_file(self, wall_us: int, mono_us: int) -> None:
        """Read the history file first, then keep it up to date."""
        if self._history_file is None:
            identity = self._identify()
            if identity is None:
                return
            self._history_file = HistoryFile(identity, self._clock, keep=self._keep)
        if not self._history_file.loaded:
            kept = self._history_file.read()
            if kept is not None:
                self._history.restore(kept, self._running(), wall_us, mono_us)
                self._previous_shares = tuple(kept.shares)
                self._changed = self._unsaved = True
        elif (self._history or self._shares) and self._history_file.write(
            self._file_record, now=self._unsaved or self._due(mono_us)
        ):
            self._unsaved, self._kept_us = False, mono_us
        if self._trouble != (error := self._history_file.error):
            self._trouble, self._changed = error, True
            if error is not None:
                self._events.append(history_error_event(error, wall_us, mono_us))

    def _identify(self) -> HistoryServer | None:
        """Return the server's identity, None until it is known."""
        server, locality = self._server.server, self._server.locality
        if server is None or locality is None:
            return None
        directory = server.data_directory if locality.local else None
        address = address_of(self._server.conninfo).server
        return HistoryServer(self._target_key, address, server.system_identifier, directory)

    def _due(self, mono_us: int) -> bool:
        """Return whether the progress of running jobs is to be stored, once a minute."""
        return bool(self._shares) and mono_us - self._kept_us > SHARES_WRITE_INTERVAL_US

    def _file_record(self) -> KeptHistory:
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        return self._history.to_file_record(self._running(), wall_us, mono_us, self._shares)

    def _running(self) -> list[JobKey]:
        return [job.key for job in self._watch.running(self._clock.mono_us())]
