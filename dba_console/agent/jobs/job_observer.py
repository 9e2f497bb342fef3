"""Looks at the programs of dumps and restores and keeps what each look adds to what is known of them.

Runs in a lane of its own: whatever it reads may hang. One that is abandoned takes with it all that it knew.
"""

from __future__ import annotations

from dba_console.agent.jobs.job_detection import ObservedJobProgram
from dba_console.agent.jobs.observation import Observation, ObservationRequest
from dba_console.agent.jobs.observed_program import ObservedProgram
from dba_console.agent.jobs.past_runs import RunFacts
from dba_console.agent.jobs.remote_job import remote_job
from dba_console.agent.jobs.session_matching import SessionMatch, SessionMatcher, program_key
from dba_console.agent.jobs.tracked_job import TrackedJob
from dba_console.clock import Clock
from dba_console.frames.job_sessions import ClientProgram, find_jobs
from dba_console.probes.jobs.pipeline import DataFlow, Pipelines
from dba_console.probes.jobs.running_programs import ProgramScanner, RunningProgram
from dba_console.probes.jobs.stderr_reader import StderrReader
from dba_console.samples.jobs import JobNow, JobsNow
from dba_console.samples.sample import make_part

SCRIPT_SIZE = 10 << 20
"""What psql reads is taken for a dump from this size on, or where it comes out of a pipe or a dump."""


class JobObserver:
    """Used by one thread: that of its lane."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._programs = ProgramScanner()
        self._matcher = SessionMatcher()
        self._pipelines = Pipelines()
        self._logs = StderrReader()
        self._tracked: dict[tuple[int, int], TrackedJob] = {}

    def observe(self, question: ObservationRequest) -> Observation:
        """One look at everything."""
        begun_us = self._clock.mono_us()
        programs = self._programs.scan()
        joined = self._matcher.match(question, programs)
        ours = [one for one in programs if program_key(one) in joined.sessions or program_key(one) in self._tracked]
        flows = self._pipelines.read_flows(ours)
        words = self._logs.read_new(ours)
        ended = self._finish_ended({program_key(one) for one in programs}, question)
        jobs: list[JobNow] = []
        lives: dict[ClientProgram, ObservedJobProgram] = {}
        for program in ours:
            tracked = self._tracked_job(program, flows[program.pid])
            if tracked is None:
                continue
            seen = ObservedProgram(program, joined, flows[program.pid], words[program.pid], question, begun_us)
            jobs.append(now := tracked.observe(seen))
            lives[tracked.owner] = ObservedJobProgram(frozenset(now.backends), now.elapsed_s, begun_us)
        jobs += _remote_jobs(joined, question)
        took_us = self._clock.mono_us() - begun_us
        told = JobsNow(question.wall_us, tuple(jobs))
        part = make_part("jobs.now", told, at_us=begun_us, took_us=took_us)
        return Observation(begun_us, took_us, told, part, lives, ended)

    def _tracked_job(self, program: RunningProgram, flow: DataFlow) -> TrackedJob | None:
        key = program_key(program)
        known = self._tracked.get(key)
        if known is None and (program.kind != "psql" or _reads_a_dump(program, flow)):
            known = self._tracked[key] = TrackedJob(program)
        return known

    def _finish_ended(
        self, running: set[tuple[int, int]], question: ObservationRequest
    ) -> dict[ClientProgram, RunFacts]:
        gone = [key for key in self._tracked if key not in running]
        ended = [self._tracked.pop(key) for key in gone]
        return {one.owner: one.finish(question.wall_us, self._logs.read_last(one.program)) for one in ended}


def _reads_a_dump(program: RunningProgram, flow: DataFlow) -> bool:
    """Whether this psql is given a dump to run, and not a person's questions."""
    size = sum(one.total for one in flow.inputs)
    return size >= SCRIPT_SIZE or flow.source_pid is not None or bool(flow.through and flow.inputs)


def _remote_jobs(joined: SessionMatch, question: ObservationRequest) -> list[JobNow]:
    """Jobs of which only the sessions are seen."""
    return [remote_job(job, joined.notes.get(job.leader.pid), question) for job in find_jobs(joined.unmatched)]
