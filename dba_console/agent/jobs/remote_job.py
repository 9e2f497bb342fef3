"""A job of which only the sessions are seen: its program runs on another host, or may not be looked at. Pure."""

from __future__ import annotations

from dba_console.agent.jobs.observation import ObservationRequest
from dba_console.archives.statement_parser import read_statement
from dba_console.frames.connections import ACTIVE
from dba_console.frames.job_sessions import SessionJob, job_phase
from dba_console.samples.jobs import OBJECTS_LISTED, JobNow, ObjectNow
from dba_console.samples.postgres import Operation
from dba_console.sanitize import clean


def remote_job(job: SessionJob, note: str | None, question: ObservationRequest) -> JobNow:
    """What its sessions alone tell: what it works on, and why nothing tells how much there is."""
    leader = job.leader
    copies = {row.pid: row for row in question.operations if row.kind == "copy" and row.pid in job.pids}
    objects = [one for row in job.sessions if (one := _object(row.pid, row.query, row.state, copies)) is not None]
    local = leader.client is None or leader.client == "[local]"
    return JobNow(
        kind=job.kind, pid=None, backends=tuple(sorted(job.pids)), database=leader.database, user=leader.user,
        version=None, format=None, compression=None, jobs=None, command=None, run=None,
        started_us=None, elapsed_s=None, reads=None, read_bytes=None, read_size_bytes=None,
        writes=None, written_bytes=None, written_per_s=None, mount=None, free_bytes=None, need_bytes=None, fits=None,
        phase=job_phase(job), phases=(), objects=tuple(objects[:OBJECTS_LISTED]), counts=(len(objects), 0, 0, 0),
        pct=None, grade="unknown", eta_s=None, eta_grade="unknown", errors=None, last_error=None, critical=(),
        sources=("pg_stat_activity", *(("pg_stat_progress_copy",) if copies else ())),
        unknown=(_why(job, note, question, local=local),), client=None if local else clean(leader.client or ""),
    )  # fmt: skip


def _why(job: SessionJob, note: str | None, question: ObservationRequest, *, local: bool) -> str:
    """Why its program tells nothing."""
    lost = "how much there is to do, what it reads and writes and its messages are not known"
    if not question.here:
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
        name=clean(name), what=named.desc, phase=named.phase, state="running", weight=None,
        done=None if copy is None or copy.done is None else float(copy.done), total=None,
        unit=None if copy is None else copy.unit, pct=None, grade="unknown", rate_per_s=None, started_us=None,
        elapsed_s=None, eta_s=None, pid=pid, note=None,
    )  # fmt: skip
