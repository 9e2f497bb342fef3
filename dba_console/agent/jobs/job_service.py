"""The jobs' side of the agent: fed with each reading of the sessions, gives the parts `jobs` and `jobs.now`, and tells
what ended.
"""

from __future__ import annotations

from collections.abc import Set

from dba_console.agent.jobs.history_files import history_path
from dba_console.agent.jobs.history_writer import HistoryFile
from dba_console.agent.jobs.job_detection import (
    NO_PROGRAMS,
    EndedJob,
    JobDetector,
    ObservedJobPrograms,
    application_names,
    find_possible_jobs,
)
from dba_console.agent.jobs.job_events import ended_event, history_error_event
from dba_console.agent.jobs.job_history import JobHistory, KeptHistory, KeptServer, ReportedProgress
from dba_console.agent.jobs.observation import Observation, ObservationRequest
from dba_console.agent.jobs.observer_lane import ObserverLane
from dba_console.agent.jobs.past_runs import RunFacts, limit_phases
from dba_console.agent.server_service import ServerService
from dba_console.clock import Clock
from dba_console.frames.job_sessions import ClientProgram
from dba_console.samples.event import Event
from dba_console.samples.jobs import JobKey, Jobs
from dba_console.samples.postgres import Sessions
from dba_console.samples.registry import PARTS
from dba_console.samples.sample import Part, make_part
from dba_console.target import address_of

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
