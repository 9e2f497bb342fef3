"""The jobs' side of the agent: fed with each reading of the sessions, gives the parts `jobs` and `jobs.now`, and tells
what ended.
"""

from __future__ import annotations

from collections.abc import Set

from dba_console.agent.jobs.history import JobHistory, KeptHistory, KeptServer, Share
from dba_console.agent.jobs.keeping import Keeping
from dba_console.agent.jobs.look import Look, Question
from dba_console.agent.jobs.looking import Looking
from dba_console.agent.jobs.runs import Told, within
from dba_console.agent.jobs.store import history_file
from dba_console.agent.jobs.telling import ended_event, trouble_event
from dba_console.agent.jobs.watch import NONE, Ended, JobWatch, Programs, may_be_job, names_of
from dba_console.agent.server_side import ServerSide
from dba_console.clock import Clock
from dba_console.frames.jobs import Owner
from dba_console.samples.event import Event
from dba_console.samples.jobs import JobKey, Jobs
from dba_console.samples.postgres import Sessions
from dba_console.samples.registry import PARTS
from dba_console.samples.sample import Part, make_part
from dba_console.target import address_of

PART = "jobs"
OLD_US = 15_000_000
"""What a look found that is older holds no longer: whether a program goes on is then told from its sessions."""
SHARES_US = 60_000_000
TOLD = 50
"""Programs that ended whose sessions may still be seen."""


class JobSide:
    """Used by the tick alone; costs a look at the sessions' names while no job runs. Without `keep` the history of jobs
    is read and not written."""

    def __init__(self, target_key: str, server: ServerSide, clock: Clock, *, keep: bool = True) -> None:
        self._server, self._clock = server, clock
        self._watch = JobWatch()
        self._history = JobHistory(clock.mono_us())
        address = address_of(server.conninfo)
        self._keeping = Keeping(history_file(target_key), clock, address, keep=keep)
        self._whose = KeptServer(address.server)
        self._looking = Looking(clock)
        self._newest: Look | None = None
        self._told: dict[Owner, Told] = {}
        self._shares: tuple[Share, ...] = ()
        """What was last said of the jobs under way."""
        self._left: tuple[Share, ...] = ()
        """What the agent before this one said last."""
        self._kept_us = 0
        self._mine: frozenset[int] = frozenset()
        """Sessions of jobs, as last seen."""
        self._sessions: Sessions | None = None
        self._changed = True
        """Since the part was last given."""
        self._unsaved = False
        self._told_us = 0
        self._trouble: str | None = None
        self._events: list[Event] = []

    @property
    def due(self) -> bool:
        """A session may be that of a job, and no look at the programs has ended yet."""
        return bool(self._mine) and self._newest is None and self._looking.trouble is None

    @property
    def stuck(self) -> int:
        """Threads that hang with a program's files."""
        return self._looking.stuck

    def tick(self) -> list[Part]:
        """Look at what was read; the parts, where they are due or something changed."""
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        names = names_of(() if self._server.sessions is None else self._server.sessions.rows)
        parts = self._look_at_programs(names)
        self._look(wall_us, mono_us, names)
        if self._sessions is None:
            return parts
        self._attend(wall_us, mono_us)
        if not self._changed and mono_us - self._told_us < PARTS[PART].every_s * 1_000_000:
            return parts
        self._changed, self._told_us = False, mono_us
        jobs = Jobs(wall_us, self._history.past(wall_us, mono_us), self._watch.running(mono_us))
        return [*parts, make_part(PART, jobs, at_us=mono_us, note=self._trouble)]

    def events(self) -> list[Event]:
        """What happened since last asked."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Write what is known; a disk that does not answer is waited for a second."""
        self._looking.close()
        self._keeping.close(self._kept() if self._history or self._shares else None)

    def _look_at_programs(self, names: Set[str]) -> list[Part]:
        """Take what a look found, and begin the next one where a session may be that of a job."""
        sessions, trouble = self._server.sessions, self._looking.trouble
        rows = [] if sessions is None or not self._server.connected else sessions.rows
        operations = self._server.operations
        mine = may_be_job(rows, [] if operations is None else operations.rows, names)
        if mine != self._mine:
            self._looking.hurry()
        self._mine = mine
        look = self._looking.tick(self._question, wanted=bool(mine))
        if look is not None:
            self._newest = look
            self._shares = tuple(
                Share(job.kind, job.pid, job.started_us, job.pct)
                for job in look.now.jobs
                if job.pid is not None and job.started_us is not None and job.pct is not None
            )
            self._told = dict([*self._told.items(), *look.ended.items()][-TOLD:])
            return [look.part]
        if self._looking.trouble is not None and self._looking.trouble != trouble:
            return [
                make_part("jobs.now", None, at_us=self._clock.mono_us(), status="error", note=self._looking.trouble)
            ]
        return []

    def _question(self) -> Question:
        assert self._server.sessions is not None
        operations, locality = self._server.operations, self._server.locality
        return Question(
            self._server.sessions,
            () if operations is None else tuple(operations.rows),
            self._server.server,
            self._server.conninfo,
            here=locality is not None and locality.local is True,
            wall_us=self._clock.wall_us(),
            mono_us=self._clock.mono_us(),
            runs=self._history.runs({kind for kind, _, _ in self._running()}),
            shares=(*self._left, *self._shares),
        )

    @property
    def _programs(self) -> Programs:
        newest = self._newest
        return NONE if newest is None or self._clock.mono_us() - newest.at_us > OLD_US else newest.programs

    def _look(self, wall_us: int, mono_us: int, names: Set[str]) -> None:
        if not self._server.connected:
            self._watch.lost()
        sessions = self._server.sessions
        if sessions is None or sessions is self._sessions:
            return
        self._sessions = sessions
        version = self._watch.version
        ended, hole = self._watch.see(sessions, mono_us, self._programs, names)
        if hole is not None:
            self._history.hole(*hole, [one.key for one in ended])
            self._changed = True
        for one in ended:
            self._ended(one, wall_us, mono_us)
        if version != self._watch.version:
            self._changed = self._unsaved = True

    def _ended(self, one: Ended, wall_us: int, mono_us: int) -> None:
        told = None if one.owner is None else self._told.pop(one.owner, None)
        if told is not None and one.seconds is not None:
            told = within(told, one.seconds)
        usual_s = self._history.usual_s(one.key, None if told is None else told.source)
        self._events.append(ended_event(one, usual_s, wall_us, mono_us, told))
        if one.seconds is not None:
            self._history.ended(one.key, one.seconds, one.last_us, wall_us, mono_us, told)

    def _attend(self, wall_us: int, mono_us: int) -> None:
        """See to the file: read it first, then keep it."""
        self._identify()
        if not self._keeping.loaded:
            kept = self._keeping.read(self._whose)
            if kept is not None:
                self._history.take(kept, self._running(), wall_us, mono_us)
                self._left = tuple(kept.shares)
                self._changed = True
                self._unsaved = True  # what other targets of the server kept is now this one's too
        elif (self._history or self._shares) and self._keeping.write(
            self._kept, now=self._unsaved or self._due(mono_us)
        ):
            self._unsaved, self._kept_us = False, mono_us
        if self._trouble != (trouble := self._keeping.trouble):
            self._trouble, self._changed = trouble, True
            if trouble is not None:
                self._events.append(trouble_event(trouble, wall_us, mono_us))

    def _identify(self) -> None:
        """Which server this is, as far as it has told while connected."""
        server, locality = self._server.server, self._server.locality
        if server is not None and locality is not None:
            directory = server.data_directory if locality.local else None
            self._whose = KeptServer(self._whose.address, server.system_identifier, directory)

    def _due(self, mono_us: int) -> bool:
        """While a job is under way, how far it is said to be is kept each minute."""
        return bool(self._shares) and mono_us - self._kept_us > SHARES_US

    def _kept(self) -> KeptHistory:
        wall_us, mono_us = self._clock.wall_us(), self._clock.mono_us()
        return self._history.kept(self._running(), wall_us, mono_us, self._shares, self._whose)

    def _running(self) -> list[JobKey]:
        return [job.key for job in self._watch.running(self._clock.mono_us())]
