"""Long operations: dumps and restores, operations of the progress views, other long commands; progress, rate, ETA.

`pct` is the share of the phase as the server counts it, or of the whole if the agent knows the total (`scope`): never
above 100, never decreasing. Without a total there is no share and no ETA.
"""

from __future__ import annotations

import re

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import slope
from dba_console.watch.job_sessions import (
    MIN_ELAPSED_S,
    SessionJob,
    command,
    command_object,
    find_jobs,
    job_phase,
)
from dba_console.watch.panel import Panel, PanelFrame, Points
from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.progress.rows import ObservedJobs, ProgressRow, fill_program, fill_row, program_row
from dba_console.watch.safety.readings import Horizon
from dba_console.watch.samples.jobs import JobKey, JobNow, Jobs
from dba_console.watch.samples.postgres import Activity
from dba_console.watch.session_states import ACTIVE, wait_text


class ProgressPanel(PanelFrame, kw_only=True):
    """Dumps, restores, and other long operations."""

    operations: list[ProgressRow] = []
    """The longest first; parts of a dump or restore below its row."""


MIN_PCT = 5.0
"""Below this share no ETA is given: the rate at the start is misleading."""
LATE_FACTOR = 1.2
"""A job is late from this multiple of its typical duration on; when that is a finding is configured."""
_SEVERAL = frozenset({"create_index", "cluster", "repack"})
_UNNAMED = re.compile(r"(.+)/(\d+)", re.DOTALL)
"""Database and OID of a relation whose name is unknown."""
_ROUNDS = (
    "index_vacuum_count", "partitions_done", "child_tables_done", "current_child_table_relid", "databases_done",
    "relations_done",
)  # fmt: skip
"""Columns of the views that distinguish one pass through a phase from the next."""


def derive_progress(facts: PictureFacts) -> ProgressPanel:
    """Return the progress panel: rows of the progress views, one row per dump or restore, other long commands."""
    panel = fill_status(ProgressPanel(), facts.picture, "pg.progress", "pg.activity")
    operations = facts.picture.now("pg.progress", Operations)
    rows = [] if operations is None else operations.rows
    known = ObservedJobs(facts)
    jobs = _jobs(known, facts)
    copying = {pid for job in jobs for pid in job.pids}
    panel.operations = [_job_row(job, rows, known, facts) for job in jobs]
    job_rows = {pid: row for job, row in zip(jobs, panel.operations, strict=True) for pid in job.pids}
    panel.operations += [_program_row(job, known, facts) for job in known.without_session({job.owner for job in jobs})]
    panel.operations += [
        _view_row(row, facts) for row in rows if not (row.kind in ("copy", "basebackup") and row.pid in copying)
    ]
    panel.operations += _command_rows(facts, copying | {row.pid for row in rows})
    for row in panel.operations:
        job = job_rows.get(row.pid or 0)
        row.part_of = None if job is None or job is row else job.pid
    panel.operations.sort(key=lambda row: _sort_key(row, row if row.part_of is None else job_rows[row.pid or 0]))
    return panel


def _sort_key(row: ProgressRow, top: ProgressRow) -> tuple[float, int, bool, float, int]:
    """Longest first; parts of a dump or restore come below its row."""
    return (-(top.elapsed_s or 0.0), top.pid or 0, row is not top, -(row.elapsed_s or 0.0), row.pid or 0)


def _jobs(known: ObservedJobs, facts: PictureFacts) -> list[SessionJob]:
    if facts.sessions is None:
        return []
    rows = facts.sessions.rows
    return find_jobs(rows, known.owners(rows, facts.sessions.now_us))


def phase_key(row: Operation, query_start: int | None) -> str:
    """Return the series name of one pass through one phase of one command."""
    rounds = ",".join(str(row.detail.get(name) or 0) for name in _ROUNDS if name in row.detail)
    return f"progress:{row.kind}:{row.pid}:{query_start or 0}:{row.object or ''}:{row.phase or ''}:{rounds}"


def _view_row(row: Operation, facts: PictureFacts) -> ProgressRow:
    session = facts.by_pid.get(row.pid)
    application = "" if session is None else session.application
    made = ProgressRow(
        kind="psql" if row.kind == "copy" and application == "psql" else _command_kind(row),
        pid=row.pid,
        database=row.database,
        object=object_name(row, session),
        phase=row.phase,
        done=row.done,
        total=row.total or None,
        unit=row.unit,
        blocks=facts.count_blocked({row.pid}),
    )
    _fill_session(made, session, facts)
    _measure(made, row, phase_key(row, None if session is None else session.query_start), facts)
    return made


def object_name(row: Operation, session: Activity | None) -> str | None:
    """Return the object's name. The server gives no name for a relation of another database, and an index being built
    has none yet: then the name in the statement is used."""
    unnamed = _UNNAMED.fullmatch(row.object or "")
    if unnamed is None:
        return row.object
    from_query = None if session is None else command_object(session.query)
    return from_query or f"relation {unnamed[2]} of {unnamed[1]}"


def _command_kind(row: Operation) -> str:
    """Return the command where a view covers several: `vacuum_full`, `create_index_concurrently`."""
    command_name = row.detail.get("command")
    return (
        command_name.lower().replace(" ", "_")
        if row.kind in _SEVERAL and isinstance(command_name, str) and command_name
        else row.kind
    )


def _measure(made: ProgressRow, row: Operation, key: str, facts: PictureFacts) -> None:
    pct = row.pct
    made.rate_per_s = _rate(f"{key}.done", facts)
    if pct is None:
        return
    # The server may raise the total, or count a part again; the displayed share never decreases.
    made.pct = max([pct, *(value for _, value in facts.history.series(f"{key}.pct"))])
    made.grade = row.grade
    if made.rate_per_s and made.pct >= MIN_PCT and row.done is not None:
        total = row.total or 100.0 * row.done / made.pct
        made.eta_s = max(0.0, total - row.done) / made.rate_per_s
        made.eta_grade = "estimated" if made.grade == "estimated" else "unknown"


def _rate(name: str, facts: PictureFacts) -> float | None:
    per_s = slope(facts.history.series(name), window_s=120.0, min_span_s=10.0, min_points=5)
    return None if per_s is None else max(0.0, per_s)


def _fill_session(made: ProgressRow, session: Activity | None, facts: PictureFacts) -> None:
    if session is None:
        return
    made.user, made.query, made.wait = session.user, session.query, wait_text(session)
    made.query_bytes = session.query_bytes
    made.database = made.database or session.database
    made.started = rfc3339(session.query_start)
    made.elapsed_s = age_s(facts.server_time_us("pg.activity"), session.query_start)


def _job_row(job: SessionJob, rows: list[Operation], known: ObservedJobs, facts: PictureFacts) -> ProgressRow:
    """Return one row for all sessions of a dump or restore; a base backup has its own view with its progress."""
    leader, pids = job.leader, job.pids
    own = [row for row in rows if row.pid in pids]
    past = facts.picture.now("jobs", Jobs)
    if job.kind == "pg_basebackup" and (backups := [row for row in own if row.kind == "basebackup"]):
        shown = _view_row(backups[0], facts)
        if job.owner is not None:
            fill_program(shown, known.jobs[job.owner])
        _fill_typical(shown, (job.kind, leader.database, leader.user), past)
        return shown
    copies = [row for row in own if row.kind == "copy"]
    busiest = max(job.sessions, key=lambda row: (row.state in ACTIVE, -(row.query_start or 0)))
    started, now = _job_start(job, past), None
    made = ProgressRow(
        kind=job.kind,
        pid=leader.pid,
        database=leader.database,
        object=", ".join(dict.fromkeys(filter(None, (object_name(row, facts.by_pid.get(row.pid)) for row in copies))))
        or None,
        phase=job_phase(job),
        user=leader.user,
        query=busiest.query,
        query_bytes=busiest.query_bytes,
        wait=wait_text(busiest),
        blocks=facts.count_blocked(pids),
        backends=sorted(pids),
        xid_age=_horizon_age(pids, facts),
    )
    made.started = rfc3339(started)
    made.elapsed_s = age_s(facts.server_time_us("pg.activity"), started)
    if copies:
        made.done, made.unit = float(sum(row.done or 0 for row in copies)), copies[0].unit
        rates = [_rate(f"{phase_key(row, _query_start(row.pid, facts))}.done", facts) for row in copies]
        made.rate_per_s = None if None in rates else sum(rate or 0.0 for rate in rates)
    if job.owner is not None:
        now = known.jobs[job.owner]
        fill_row(made, now, known.age_s)
    elif known.error_note is not None:
        made.unknown = [known.error_note]
    _fill_typical(made, (job.kind, leader.database, leader.user), past, now)
    return made


def _program_row(job: JobNow, known: ObservedJobs, facts: PictureFacts) -> ProgressRow:
    """Return the row of a program without a session."""
    made = program_row(job, known.age_s)
    _fill_typical(made, (job.kind, job.database, job.user), facts.picture.now("jobs", Jobs), job)
    return made


def _fill_typical(row: ProgressRow, key: JobKey, past: Jobs | None, now: JobNow | None = None) -> None:
    """Compare with earlier runs; for a restore with those of the same source database, whatever its target."""
    before = None if past is None else past.statistics_of(key, None if now is None else now.format)
    if now is not None and now.source is not None:
        row.source, row.usual_s, row.usual_runs = now.source, now.usual_s, now.usual_runs
    elif before is not None:
        row.usual_s, row.usual_runs = before.usual_s, before.runs
    if row.usual_s is None:
        row.usual_runs = None
        return
    if row.elapsed_s is not None and row.elapsed_s >= LATE_FACTOR * row.usual_s:
        row.late_s = row.elapsed_s - row.usual_s


def _horizon_age(pids: set[int], facts: PictureFacts) -> int | None:
    """Return the age of the xmin horizon these sessions hold back; None if none of them does, or it was not read."""
    horizon = facts.picture.now("pg.horizon", Horizon)
    rows = () if horizon is None else horizon.rows
    return max((row.xid_age for row in rows if row.pid in pids and row.xid_age is not None), default=None)


def _job_start(job: SessionJob, past: Jobs | None) -> int | None:
    """Return when it began, by the server's clock. A dump is one transaction; a restore has many, and its first session
    may end early: then the agent's observation is used."""
    leader = job.leader
    if job.kind == "pg_dump":
        return leader.xact_start or leader.backend_start
    key = (job.kind, leader.database, leader.user)
    seen = [one.started for one in ([] if past is None else past.running) if one.key == key and one.started is not None]
    return min([*seen, leader.backend_start]) if leader.backend_start is not None else None


def _query_start(pid: int, facts: PictureFacts) -> int | None:
    row = facts.by_pid.get(pid)
    return None if row is None else row.query_start


def _command_rows(facts: PictureFacts, known: set[int]) -> list[ProgressRow]:
    """Return long commands that are in no view: ALTER TABLE, REFRESH, and index builds that wait for their lock."""
    made = []
    for session in () if facts.sessions is None else facts.sessions.rows:
        if session.pid in known or session.state not in ACTIVE or session.leader_pid is not None:
            continue
        kind = command(session.query)
        if kind is None:
            continue
        row = ProgressRow(
            kind=kind, pid=session.pid, object=command_object(session.query), blocks=facts.count_blocked({session.pid})
        )
        _fill_session(row, session, facts)
        if row.elapsed_s is not None and row.elapsed_s >= MIN_ELAPSED_S:
            made.append(row)
    return made


def points(facts: PictureFacts) -> Points:
    """Return done and share of each operation, in series for each pass through a phase."""
    operations = facts.picture.now("pg.progress", Operations)
    if operations is None or not facts.was_read_now("pg.progress"):
        return {}
    values: dict[str, float | None] = {}
    for row in operations.rows:
        key = phase_key(row, _query_start(row.pid, facts))
        values[f"{key}.done"], values[f"{key}.pct"] = row.done, row.pct
    return values


PANEL = Panel(name="progress", fields=ProgressPanel, derive=derive_progress, points=points)
