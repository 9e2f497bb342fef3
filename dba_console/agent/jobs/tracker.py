"""Looks at the programs of dumps and restores and keeps what each look adds to what is known of them.

Runs in a lane of its own: whatever it reads may hang. One that is abandoned takes with it all that it knew.
"""

from __future__ import annotations

from dba_console.agent.jobs.joining import Joined, Joining, key_of
from dba_console.agent.jobs.look import Look, Question
from dba_console.agent.jobs.runs import Told
from dba_console.agent.jobs.seen import Seen
from dba_console.agent.jobs.tracked import Tracked
from dba_console.agent.jobs.unseen import unseen_job
from dba_console.agent.jobs.watch import Live
from dba_console.clock import Clock
from dba_console.frames.jobs import Owner, find_jobs
from dba_console.probes.jobs.log import Logs
from dba_console.probes.jobs.pipeline import Flow, Pipelines
from dba_console.probes.jobs.programs import Program, Programs
from dba_console.samples.jobs import JobNow, JobsNow
from dba_console.samples.sample import make_part

SCRIPT_SIZE = 10 << 20
"""What psql reads is taken for a dump from this size on, or where it comes out of a pipe or a dump."""


class Tracker:
    """Used by one thread: that of its lane."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._programs = Programs()
        self._joining = Joining()
        self._pipelines = Pipelines()
        self._logs = Logs()
        self._tracked: dict[tuple[int, int], Tracked] = {}

    def look(self, question: Question) -> Look:
        """One look at everything."""
        begun_us = self._clock.mono_us()
        programs = self._programs.look()
        joined = self._joining.join(question, programs)
        ours = [one for one in programs if key_of(one) in joined.sessions or key_of(one) in self._tracked]
        flows = self._pipelines.look(ours)
        words = self._logs.look(ours)
        ended = self._end({key_of(one) for one in programs}, question)
        jobs: list[JobNow] = []
        lives: dict[Owner, Live] = {}
        for program in ours:
            tracked = self._known(program, flows[program.pid])
            if tracked is None:
                continue
            seen = Seen(program, joined, flows[program.pid], words[program.pid], question, begun_us)
            jobs.append(now := tracked.see(seen))
            lives[tracked.owner] = Live(frozenset(now.backends), now.elapsed_s, begun_us)
        jobs += _unseen(joined, question)
        took_us = self._clock.mono_us() - begun_us
        told = JobsNow(question.wall_us, tuple(jobs))
        part = make_part("jobs.now", told, at_us=begun_us, took_us=took_us)
        return Look(begun_us, took_us, told, part, lives, ended)

    def _known(self, program: Program, flow: Flow) -> Tracked | None:
        key = key_of(program)
        known = self._tracked.get(key)
        if known is None and (program.kind != "psql" or _reads_a_dump(program, flow)):
            known = self._tracked[key] = Tracked(program)
        return known

    def _end(self, running: set[tuple[int, int]], question: Question) -> dict[Owner, Told]:
        gone = [key for key in self._tracked if key not in running]
        ended = [self._tracked.pop(key) for key in gone]
        return {one.owner: one.ended(question.wall_us, self._logs.last(one.program)) for one in ended}


def _reads_a_dump(program: Program, flow: Flow) -> bool:
    """Whether this psql is given a dump to run, and not a person's questions."""
    size = sum(one.total for one in flow.readings)
    return size >= SCRIPT_SIZE or flow.source_program is not None or bool(flow.through and flow.readings)


def _unseen(joined: Joined, question: Question) -> list[JobNow]:
    """Jobs of which only the sessions are seen."""
    return [unseen_job(job, joined.notes.get(job.leader.pid), question) for job in find_jobs(joined.alone)]
