"""Findings about dumps and restores: late against their own history, missing, and kept where they do harm.

The history is the agent's (part `jobs`): nothing is said of a job that ran fewer times than it takes to know what is
usual, or of a time that was not watched.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.backups_beside import wal_beside_backups
from dba_console.findings.dumps_missing import dump_missing
from dba_console.findings.job_phrases import are_sessions_fresh, job_evidence, job_subject, since_reading_s
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.connections import ACTIVE
from dba_console.frames.job_sessions import find_jobs, job_name
from dba_console.frames.sessions import wait_text
from dba_console.frames.timestamps import rfc3339
from dba_console.limits.jobs import JobLimits
from dba_console.samples.jobs import JobKey, Jobs, JobStatistics, RunningJob
from dba_console.samples.postgres import Activity
from dba_console.sanitize import clean
from dba_console.units import human_duration


def dump_late(s: RuleContext) -> Iterator[Signal]:
    """Compared with the median of its runs before: of the same program, database and user.

    Late is half as long again, and ten minutes: our own figures, the second so that short jobs are never late by
    seconds. Dumps that outgrow the night over months (story S2) take the median with them; one that is slow tonight, or
    hangs, does not. Durations are by the clock no one sets.
    """
    jobs = s.picture.now("jobs", Jobs)
    if jobs is None or not jobs.running or not are_sessions_fresh(s):
        return
    for job in jobs.running:
        past = jobs.statistics_of(job.key)
        if past is not None and past.usual_s is not None and job.elapsed_s is not None:
            elapsed_s = job.elapsed_s + since_reading_s(s)
            due_s = _due_s(past.usual_s, s.limits.jobs)
            if elapsed_s >= due_s:
                yield _late_signal(s, job, past, elapsed_s, due_s)


def _due_s(usual_s: float, limits: JobLimits) -> float:
    return max(limits.late_factor * usual_s, usual_s + limits.late_over_s)


def _late_signal(s: RuleContext, job: RunningJob, past: JobStatistics, elapsed_s: float, due_s: float) -> Signal:
    name, usual_s = job_name(job.kind, job.database), past.usual_s or 0.0
    sessions = _sessions_of(s, job.key)
    behind = s.facts.count_blocked({row.pid for row in sessions})
    busiest = max(sessions, key=lambda row: (row.state in ACTIVE, -(row.query_start or 0)), default=None)
    wait = None if busiest is None else wait_text(busiest)
    took = f"{human_duration(elapsed_s)}, usual {human_duration(usual_s)}"
    waiters = f"; {behind} session{'s wait' if behind > 1 else ' waits'} behind it" if behind else ""
    over_s = elapsed_s - usual_s
    return Signal(
        severity="warning",
        subject=job_subject(job.key),
        text=f"{name} runs late: {took} ({past.runs} runs), {human_duration(over_s)} over{waiters}",
        cause=f"{name} runs late ({took})",
        evidence={
            **job_evidence(job.key),
            "pid": job.pid,
            "started": rfc3339(job.started),
            "elapsed_s": round(elapsed_s, 1),
            "usual_s": usual_s,
            "over_s": round(over_s, 1),
            "runs": past.runs,
            "blocks": behind,
            "wait": None if wait is None else clean(wait),
        },
        series=("io.psi_full_pct", "io.read_bytes_per_s"),
        since_us=s.now_us - int((elapsed_s - due_s) * 1e6),
        advice=_wait_advice(wait),
    )


def _wait_advice(wait: str | None) -> str:
    """Where to look first, by what the job waits for."""
    if wait is None:
        return "It works and waits for nothing now: compare the size of the database with that of its usual runs."
    if wait.startswith("Client:"):
        return (
            f"It waits for its own client ({clean(wait)}): look where its output goes, a full disk or a slow network."
        )
    if wait.startswith("Lock:"):
        return f"It waits for a lock ({clean(wait)}): the locks panel names who holds it."
    if wait.startswith("IO:"):
        return f"It waits for I/O ({clean(wait)}): the I/O panel says which device is slow, and since when."
    return f"It waits for {clean(wait)}."


def _sessions_of(s: RuleContext, key: JobKey) -> list[Activity]:
    rows = [] if s.facts.sessions is None else s.facts.sessions.rows
    return [
        row
        for job in find_jobs(rows)
        if (job.kind, job.leader.database, job.leader.user) == key
        for row in job.sessions
    ]


_MISSING_SETTINGS = ("missing_factor", "missing_longest_factor", "missing_runs", "missing_interval_s", "missing_run_s",
            "missing_given_up")  # fmt: skip

RULES: tuple[Rule, ...] = (
    Rule(
        name="dump-late",
        title="A dump, restore or other long program takes far longer than its runs before",
        parts=("jobs", "pg.activity"),
        check=dump_late,
        settings=("jobs.late_factor", "jobs.late_over_s"),
        source="story S2; the median of up to sixty runs on this server",
    ),
    Rule(
        name="dump-missing",
        title="No dump has finished for longer than usual",
        parts=("jobs", "pg.activity"),
        check=dump_missing,
        settings=tuple(f"jobs.{name}" for name in _MISSING_SETTINGS),
        source="story S2; the distances between the runs on this server",
    ),
    Rule(
        name="wal-beside-backups",
        title="Archived WAL or backups lie on the file system of the data or WAL",
        parts=("host.mounts",),
        check=wal_beside_backups,
        source="story S7; PostgreSQL: continuous archiving (backup.sgml)",
    ),
)
