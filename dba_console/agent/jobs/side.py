"""The jobs' side of the agent: fed with each reading of the sessions, gives the part `jobs` and tells what ended."""

from __future__ import annotations

from dba_console.agent.jobs.history import JobHistory, KeptHistory
from dba_console.agent.jobs.keeping import Keeping
from dba_console.agent.jobs.store import history_file
from dba_console.agent.jobs.telling import ended_event, trouble_event
from dba_console.agent.jobs.watch import Ended, JobWatch
from dba_console.agent.server_side import ServerSide
from dba_console.clock import Clock
from dba_console.samples.event import Event
from dba_console.samples.jobs import Jobs
from dba_console.samples.postgres import Sessions
from dba_console.samples.registry import PARTS
from dba_console.samples.sample import Part, make_part

PART = "jobs"


class JobSide:
    """Used by the tick alone; costs a look at the sessions' names while no job runs."""

    def __init__(self, target_key: str, server: ServerSide, clock: Clock) -> None:
        self._server, self._clock = server, clock
        self._watch = JobWatch()
        self._history = JobHistory(clock.mono_us())
        self._keeping = Keeping(history_file(target_key), clock)
        self._sessions: Sessions | None = None
        self._changed = True
        """Since the part was last given."""
        self._unsaved = False
        self._told_us = 0
        self._trouble: str | None = None
        self._events: list[Event] = []

    def tick(self) -> list[Part]:
        """Look at what was read; the part, where it is due or something changed."""
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        self._look(wall_us, mono_us)
        if self._sessions is None:
            return []
        self._attend(wall_us, mono_us)
        if not self._changed and mono_us - self._told_us < PARTS[PART].every_s * 1_000_000:
            return []
        self._changed, self._told_us = False, mono_us
        jobs = Jobs(wall_us, self._history.past(wall_us, mono_us), self._watch.running(mono_us))
        return [make_part(PART, jobs, at_us=mono_us, note=self._trouble)]

    def events(self) -> list[Event]:
        """What happened since last asked."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Write what is known; a disk that does not answer is waited for a second."""
        self._keeping.close(self._kept() if self._history else None)

    def _look(self, wall_us: int, mono_us: int) -> None:
        if not self._server.connected:
            self._watch.lost()
        sessions = self._server.sessions
        if sessions is None or sessions is self._sessions:
            return
        self._sessions = sessions
        version = self._watch.version
        ended, hole = self._watch.see(sessions, mono_us)
        if hole is not None:
            self._history.hole(*hole, [one.key for one in ended])
            self._changed = True
        for one in ended:
            self._ended(one, wall_us, mono_us)
        if version != self._watch.version:
            self._changed = self._unsaved = True

    def _ended(self, one: Ended, wall_us: int, mono_us: int) -> None:
        self._events.append(ended_event(one, self._history.usual_s(one.key), wall_us, mono_us))
        if one.seconds is not None:
            self._history.ended(one.key, one.seconds, one.last_us, wall_us, mono_us)

    def _attend(self, wall_us: int, mono_us: int) -> None:
        """See to the file: read it first, then keep it."""
        if not self._keeping.loaded:
            kept = self._keeping.read()
            if kept is not None:
                self._history.take(kept, self._running(), wall_us, mono_us)
                self._changed = True
        elif self._history and self._keeping.write(self._kept, now=self._unsaved):
            self._unsaved = False
        if self._trouble != (trouble := self._keeping.trouble):
            self._trouble, self._changed = trouble, True
            if trouble is not None:
                self._events.append(trouble_event(trouble, wall_us, mono_us))

    def _kept(self) -> KeptHistory:
        return self._history.kept(self._running(), self._clock.wall_us(), self._clock.mono_us())

    def _running(self) -> list[tuple[str, str | None, str | None]]:
        return [job.key for job in self._watch.running(self._clock.mono_us())]
