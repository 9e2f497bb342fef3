"""Observe all dumps and restores of a host, scan by scan: the entry point of this package.

Runs in its own lane because any read may hang. The state of an abandoned observer is lost.
"""

from __future__ import annotations

import time

from dba_console.core.clock import Clock
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.statement_parser import read_statement
from dba_console.jobs.following.job_detection import Observation, ObservationRequest, ObservedJobProgram
from dba_console.jobs.following.pipeline import DataFlow, Pipelines
from dba_console.jobs.following.program_scanner import ProgramScanner, RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram, SessionMatch, SessionMatcher, program_key
from dba_console.jobs.following.stderr_reader import StderrReader
from dba_console.jobs.following.tracked_job import TrackedJob
from dba_console.jobs.history.run_statistics import RunFacts
from dba_console.watch.job_sessions import ClientProgram, SessionJob, find_jobs, job_phase
from dba_console.watch.progress.readings import Operation
from dba_console.watch.samples.jobs import OBJECTS_LISTED, JobNow, JobsNow, ObjectNow
from dba_console.watch.samples.sample import make_part
from dba_console.watch.session_states import ACTIVE

# A remote job: only its sessions are known, because its program runs on another host or is not visible. Pure functions.


def remote_job(job: SessionJob, note: str | None, request: ObservationRequest) -> JobNow:
    """Return the state of a job known only by its sessions, with the reason why its progress is unknown."""
    leader = job.leader
    copies = {row.pid: row for row in request.operations if row.kind == "copy" and row.pid in job.pids}
    objects = [one for row in job.sessions if (one := _object(row.pid, row.query, row.state, copies)) is not None]
    local = leader.client is None or leader.client == "[local]"
    return JobNow(
        kind=job.kind, pid=None, backends=tuple(sorted(job.pids)), database=leader.database, user=leader.user,
        phase=job_phase(job), objects=tuple(objects[:OBJECTS_LISTED]), counts=(len(objects), 0, 0, 0),
        sources=("pg_stat_activity", *(("pg_stat_progress_copy",) if copies else ())),
        unknown=(_why(job, note, request, local=local),), client=None if local else clean(leader.client or ""),
    )  # fmt: skip


def _why(job: SessionJob, note: str | None, request: ObservationRequest, *, local: bool) -> str:
    """Return why its program is unknown."""
    lost = "its total work, files and messages are unknown"
    if not request.here:
        return f"the server runs on another host, so the program of a session cannot be found here: {lost}"
    if note is not None:
        return f"{note}: {lost}"
    if not local:
        return f"its program runs on {clean(job.leader.client or 'another host')}: {lost}"
    return f"its program was not found: {lost}"


def _object(pid: int, query: str, state: str | None, copies: dict[int, Operation]) -> ObjectNow | None:
    named = read_statement(query) if state in ACTIVE else None
    if named is None:
        return None
    copy = copies.get(pid)
    name = named.tag if named.schema is None else f"{named.schema}.{named.tag}"
    return ObjectNow(
        name=clean(name), what=named.desc, phase=named.phase, state="running", pid=pid,
        done=None if copy is None or copy.done is None else float(copy.done), unit=None if copy is None else copy.unit,
    )  # fmt: skip


SCRIPT_SIZE = 10 << 20
"""A file of at least this size that psql reads counts as a dump; also input from a pipe or from a dump."""


class JobObserver:
    """Observes all jobs of a host. Not thread-safe: used by the thread of its lane."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._programs = ProgramScanner()
        self._pipelines = Pipelines()
        self._logs = StderrReader()
        self._matcher = SessionMatcher(self._logs.has_keeper)
        self._tracked: dict[tuple[int, int], TrackedJob] = {}

    def observe(self, request: ObservationRequest) -> Observation:
        """Do one scan of all jobs."""
        begun_us, cpu_ns = self._clock.mono_us(), time.thread_time_ns()
        programs = self._programs.scan()
        matched = self._matcher.match(request, programs)
        ours = [one for one in programs if program_key(one) in matched.sessions or program_key(one) in self._tracked]
        flows = self._pipelines.read_flows(ours)
        messages = self._logs.read_new(ours)
        ended = self._finish_ended({program_key(one) for one in programs}, request)
        jobs: list[JobNow] = []
        live_programs: dict[ClientProgram, ObservedJobProgram] = {}
        for program in ours:
            tracked = self._tracked_job(program, flows[program.pid])
            if tracked is None:
                continue
            observed = ObservedProgram(program, matched, flows[program.pid], messages[program.pid], request, begun_us)
            jobs.append(now := tracked.observe(observed))
            live_programs[tracked.owner] = ObservedJobProgram(
                frozenset(now.backends), now.elapsed_s, begun_us, now.format
            )
        jobs += _remote_jobs(matched, request)
        took_us = self._clock.mono_us() - begun_us
        jobs_now = JobsNow(request.wall_us, tuple(jobs))
        part = make_part("jobs.now", jobs_now, at_us=begun_us, took_us=took_us)
        cpu_us = (time.thread_time_ns() - cpu_ns) // 1000
        return Observation(begun_us, took_us, jobs_now, part, live_programs, ended, cpu_us)

    def _tracked_job(self, program: RunningProgram, flow: DataFlow) -> TrackedJob | None:
        key = program_key(program)
        known = self._tracked.get(key)
        if known is None and (program.kind != "psql" or _reads_a_dump(program, flow)):
            known = self._tracked[key] = TrackedJob(program)
        return known

    def _finish_ended(
        self, running: set[tuple[int, int]], request: ObservationRequest
    ) -> dict[ClientProgram, RunFacts]:
        gone = [key for key in self._tracked if key not in running]
        ended = [self._tracked.pop(key) for key in gone]
        return {one.owner: one.finish(request.wall_us, self._logs.read_last(one.program)) for one in ended}


def _reads_a_dump(program: RunningProgram, flow: DataFlow) -> bool:
    """Check whether this psql runs a dump, not interactive queries."""
    size = sum(one.total for one in flow.inputs)
    return size >= SCRIPT_SIZE or flow.source_pid is not None or bool(flow.through and flow.inputs)


def _remote_jobs(matched: SessionMatch, request: ObservationRequest) -> list[JobNow]:
    """Return the jobs known only by their sessions."""
    return [remote_job(job, matched.notes.get(job.leader.pid), request) for job in find_jobs(matched.unmatched)]
