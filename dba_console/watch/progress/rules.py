"""Rules about dumps and restores: overdue by their own history, missing, or stored next to the server's files.

The history is the agent's (part `jobs`). A job with too few runs for a typical value, or a time that was not observed,
raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.phrases import sessions_text
from dba_console.watch.findings.rule import Family, Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Judgement, RuleThresholds
from dba_console.watch.job_sessions import find_jobs, job_name
from dba_console.watch.samples.host import Mount, Mounts
from dba_console.watch.samples.jobs import JobKey, Jobs, JobStatistics, RunningJob
from dba_console.watch.samples.postgres import Activity, Server
from dba_console.watch.session_states import ACTIVE, wait_text
from dba_console.watch.wait_events import explained_wait


class JobLimits(RuleThresholds, frozen=True):
    """`[findings.jobs]`."""

    family = "jobs"

    late_factor: Judgement[float] = 1.5
    """A job is overdue if it takes this many times its typical duration, and also `late_over_s` longer."""
    late_over_s: Judgement[float] = 600.0
    """A job is overdue if it takes this much longer than typical, and also `late_factor` times as long."""
    missing_factor: Judgement[float] = 1.5
    """A dump is missing if none has finished for this many typical intervals, and for `missing_longest_factor`."""
    missing_longest_factor: Judgement[float] = 1.1
    """A dump is missing if none has finished for this many times its longest typical interval as well."""
    missing_runs: Judgement[int] = 4
    """Number of known runs that a typical interval needs."""
    missing_interval_s: Judgement[float] = 3600.0
    """Dumps at shorter intervals are not missed: they are manual or tests."""
    missing_run_s: Judgement[float] = 5.0
    """Dumps shorter than this are not missed: they may start and end between two readings."""
    missing_given_up: Judgement[float] = 10.0
    """After this many intervals a dump counts as discontinued, not as missing."""


# Names of the jobs, and times of the part `jobs` by the monotonic clock.

_FRESH_US = 5_000_000
"""Maximum age of the sessions for what runs to be known."""


def _job_subject(key: JobKey, format: str | None = None) -> str:
    """Return a job as the subject of its finding id; `format` of a dump that is made in several.

    >>> _job_subject(("pg_dump", "appdb", "backup")), _job_subject(("pg_dump", "appdb", "backup"), "custom")
    ('pg_dump/appdb/backup', 'pg_dump/appdb/backup/custom')
    """
    return "/".join(clean(word) for word in (*key, format) if word is not None)


def _job_evidence(key: JobKey, format: str | None = None) -> dict[str, str | None]:
    """Return a job as evidence."""
    kind, database, user = (None if word is None else clean(word) for word in key)
    return {"kind": kind, "database": database, "user": user, **({} if format is None else {"format": clean(format)})}


def _are_sessions_fresh(s: RuleContext) -> bool:
    """Whether the sessions are current: without the server it is not known what runs."""
    sessions = s.picture.latest.get("pg.activity")
    return sessions is not None and sessions.part.reading is not None and s.mono_us - sessions.part.at_us < _FRESH_US


def _since_reading_s(s: RuleContext) -> float:
    """Return seconds since the part was read."""
    return (s.mono_us - s.picture.current["jobs"].part.at_us) / 1e6


# Dumps that ran regularly and no longer do; counts only observed time.

DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
"""Programs that run regularly; a restore is not missed."""


def dump_missing(s: RuleContext) -> Iterator[Signal]:
    """No dump has finished for longer than its interval; counted from the end of the last one.

    None has finished for one and a half typical intervals, nor for longer than the longest typical interval: a nightly
    dump is missed by noon, and weekends without one raise nothing. Only if the whole time was observed, no other user
    and no new job of another format dumped that database, and none is running now. Dumps of several formats are
    several jobs.
    """
    jobs = s.picture.now("jobs", Jobs)
    if jobs is None or not jobs.past or not _are_sessions_fresh(s):
        return
    running = {(one.kind, one.database) for one in jobs.running}
    for past, allowed_s in _regular_dumps(s, jobs):
        age_s, watched_s = _age_s(s, jobs, past.last_ended_us), _age_s(s, jobs, past.watched_since_us)
        if age_s is None or watched_s is None or min(age_s, watched_s) < allowed_s:
            continue
        given_up = age_s > s.limits.of(JobLimits).missing_given_up * (past.interval_s or 0.0)
        if not (given_up or (past.kind, past.database) in running or _dumped_otherwise(s, jobs, past, allowed_s)):
            yield _missing_signal(past, age_s, watched_s, past.format if jobs.has_formats(past.key) else None)


def _regular_dumps(s: RuleContext, jobs: Jobs) -> list[tuple[JobStatistics, float]]:
    """Return the regular dumps, each with the longest allowed time without one; computed once per reading."""
    memo, at_us = s.memo("dump-missing"), s.picture.current["jobs"].part.at_us
    if memo.get("at_us") != at_us:
        allowed = [(past, _allowed_s(past, s.limits.of(JobLimits))) for past in jobs.past]
        memo["at_us"] = at_us
        memo["regular"] = [(past, seconds) for past, seconds in allowed if seconds is not None]
    regular: list[tuple[JobStatistics, float]] = memo["regular"]
    return regular


def _allowed_s(past: JobStatistics, limits: JobLimits) -> float | None:
    """Return the longest allowed time without a finished dump, seconds; None if not known for this job."""
    if past.kind not in DUMPS or past.runs < limits.missing_runs or past.intervals < limits.missing_runs - 1:
        return None
    if past.interval_s is None or past.interval_s < limits.missing_interval_s:
        return None
    if past.usual_s is None or past.usual_s < limits.missing_run_s:
        return None
    longest_s = past.longest_interval_s or past.interval_s
    return max(limits.missing_factor * past.interval_s, limits.missing_longest_factor * longest_s)


def _dumped_otherwise(s: RuleContext, jobs: Jobs, past: JobStatistics, allowed_s: float) -> bool:
    """Whether another user, or the same one in another format, dumped that database within the allowed time. A dump in
    another format that ran beside this one before does not replace it."""
    for other in jobs.past:
        if (other.kind, other.database) == (past.kind, past.database) and other is not past:
            if other.user == past.user and _ran_beside(other, past):
                continue
            age_s = _age_s(s, jobs, other.last_ended_us)
            if age_s is not None and age_s < allowed_s:
                return True
    return False


def _ran_beside(other: JobStatistics, past: JobStatistics) -> bool:
    """Whether the other job had runs before the last one of this ended, by its number of intervals."""
    if other.last_ended_us is None or other.interval_s is None or past.last_ended_us is None:
        return False
    return other.last_ended_us - int(other.intervals * other.interval_s * 1e6) < past.last_ended_us


def _missing_signal(past: JobStatistics, age_s: float, watched_s: float, form: str | None) -> Signal:
    name, every = job_name(past.kind, past.database, form), human_duration(past.interval_s)
    last_us = past.last_ended_us or 0
    if watched_s >= age_s:
        text = f"No {name} has finished for {human_duration(age_s)}, typically every {every}; the last finished at "
    else:
        text = f"No {name} finished in the {human_duration(watched_s)} observed, typically every {every}; "
        text += "the last observed finished at "
    return Signal(
        severity="warning",
        subject=_job_subject(past.key, form),
        text=text + _local_time_text(last_us),
        evidence={
            **_job_evidence(past.key, form),
            "last_ended": rfc3339(past.last_ended_us),
            "last_ended_age_s": round(age_s, 1),
            "interval_s": past.interval_s,
            "longest_interval_s": past.longest_interval_s,
            "usual_s": past.usual_s,
            "runs": past.runs,
            "watched_age_s": round(watched_s, 1),
        },
        advice="Check the timer or cron job that starts it, and its last output.",
    )


def _age_s(s: RuleContext, jobs: Jobs, wall_us: int | None) -> float | None:
    """Return the age of a wall time of the part by the monotonic clock, seconds; None if unknown or in the future."""
    if wall_us is None or wall_us > jobs.now_us:
        return None
    return (jobs.now_us - wall_us) / 1e6 + _since_reading_s(s)


def _local_time_text(wall_us: int) -> str:
    """Return the local time of the host, as in the log."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(wall_us // 1_000_000))
    except (OverflowError, ValueError, OSError):
        return "an unknown time"


# Backups on the server's file system, where removing one, or keeping one too many, stops the server.

_BACKUPS = {"archive": "Archived WAL", "backup": "backups"}


def wal_beside_backups(s: RuleContext) -> Iterator[Signal]:
    """The directory that archive_command copies to, if it can be parsed, is on a file system of the server, mounted in
    one place or in two.

    Removing one backup of 50 to 100 GB blocked all I/O of the file system, WAL included, for half a minute at
    a time. And a full file system of pg_wal stops the server (backup.sgml, continuous archiving: "PostgreSQL will do a
    PANIC shutdown").
    """
    mounts = s.facts.picture.now("host.mounts", Mounts)
    systems: dict[str, list[Mount]] = {}
    for mount in [] if mounts is None else mounts.mounts:
        if mount.holds:
            systems.setdefault(_file_system(mount), []).append(mount)
    for together in systems.values():
        held = sorted({one for mount in together for one in mount.holds})
        beside, server = [one for one in held if one in _BACKUPS], [one for one in held if _belongs_to_server(one)]
        if beside and server:
            yield _beside_signal(together, beside, server)


def _file_system(mount: Mount) -> str:
    """Return one key for all mounts of one device: a bind mount, a subvolume, a volume of a container."""
    return mount.source if mount.source.startswith("/dev/") else mount.path


def _belongs_to_server(held: str) -> bool:
    return held in ("wal", "data") or held.startswith("tablespace:")


def _beside_signal(together: list[Mount], beside: list[str], server: list[str]) -> Signal:
    paths = [clean(mount.path) for mount in together]
    where = paths[0] if len(paths) == 1 else f"one file system ({clean(together[0].source)} on {', '.join(paths)})"
    kept = " and ".join(_BACKUPS[held] for held in beside)
    theirs = " and ".join("WAL" if held == "wal" else clean(held) for held in server)
    return Signal(
        severity="warning",
        subject=paths[0],
        text=f"{kept} and the server's {theirs} share {where}: removing a large file there can stop all I/O of the "
        "database for half a minute at a time, and filling it stops the server",
        evidence={"mount": paths[0], "paths": paths, "holds": [clean(held) for held in (*beside, *server)]},
        series=(f"mount:{together[0].path}.used_bytes",),
        runbook="remove-backup",
        advice="Give backups a file system of their own; until then remove large files in small steps (runbook "
        "remove-backup), never with a plain rm.",
    )


def dump_late(s: RuleContext) -> Iterator[Signal]:
    """A job takes longer than its typical duration: the median of earlier runs of the same program, database and user,
    and of a dump of the same format.

    Overdue means 1.5 times as long, and at least ten minutes more: our own thresholds, the second so that short jobs
    are not overdue by seconds. Dumps that grow over months move the median with them; one that is slow
    tonight, or hangs, does not. Durations are by the monotonic clock.
    """
    jobs = s.picture.now("jobs", Jobs)
    if jobs is None or not jobs.running or not _are_sessions_fresh(s):
        return
    for job in jobs.running:
        past = jobs.statistics_of(job.key, job.format)
        if past is not None and past.usual_s is not None and job.elapsed_s is not None:
            elapsed_s = job.elapsed_s + _since_reading_s(s)
            due_s = _due_s(past.usual_s, s.limits.of(JobLimits))
            if elapsed_s >= due_s:
                form = job.format if jobs.has_formats(job.key) else None
                yield _late_signal(s, job, past, elapsed_s, due_s, form)


def _due_s(usual_s: float, limits: JobLimits) -> float:
    return max(limits.late_factor * usual_s, usual_s + limits.late_over_s)


def _late_signal(
    s: RuleContext, job: RunningJob, past: JobStatistics, elapsed_s: float, due_s: float, form: str | None
) -> Signal:
    name, usual_s = job_name(job.kind, job.database, form), past.usual_s or 0.0
    sessions = _sessions_of(s, job.key)
    behind = s.facts.count_blocked({row.pid for row in sessions})
    busiest = max(sessions, key=lambda row: (row.state in ACTIVE, -(row.query_start or 0)), default=None)
    wait = None if busiest is None else wait_text(busiest)
    took = f"{human_duration(elapsed_s)}, typical {human_duration(usual_s)}"
    waiters = f"; {sessions_text(behind)} for it" if behind else ""
    over_s = elapsed_s - usual_s
    return Signal(
        severity="warning",
        subject=_job_subject(job.key, form),
        text=f"{name} is overdue by {human_duration(over_s)}: {took} ({past.runs} runs){waiters}",
        cause=f"{name} is overdue ({took})",
        evidence={
            **_job_evidence(job.key, form),
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
    """Return what to check first, by what the job waits for."""
    if wait is None:
        return "It is working and does not wait: compare the size of the database with that of earlier runs."
    if wait.startswith("Client:"):
        return (
            f"It waits for its own client ({clean(wait)}): check where its output goes, a full disk or a slow network."
        )
    if wait.startswith("Lock:"):
        return f"It waits for a lock ({clean(wait)}): the locks panel names the holder."
    if wait.startswith("IO:"):
        return f"It waits for I/O ({explained_wait(wait)}): the I/O panel shows which device is slow, and since when."
    return f"It waits for {clean(wait)}."


def _sessions_of(s: RuleContext, key: JobKey) -> list[Activity]:
    rows = [] if s.facts.sessions is None else s.facts.sessions.rows
    return [
        row
        for job in find_jobs(rows)
        if (job.kind, job.leader.database, job.leader.user) == key
        for row in job.sessions
    ]


# Databases that the runbook restore has begun to fill: the run marks them, and removes the mark when they are accepted.

UNFINISHED_AFTER_S = 60.0
"""Time without a session in the database."""


def restore_unfinished(s: RuleContext) -> Iterator[Signal]:
    """A database into which the runbook restore restored only a part: the run failed, or waits for an answer."""
    reading = s.picture.now("pg.server", Server)
    marked = [] if reading is None else [one for one in reading.databases if one.restored_from is not None]
    if not marked or s.facts.sessions is None or not _are_sessions_fresh(s):
        return
    used = {row.database for row in s.facts.sessions.rows}
    for one in marked:
        if one.name in used:
            continue
        name, archive = clean(one.name), clean(one.restored_from or "")
        yield Signal(
            severity="warning",
            subject=one.name,
            text=f"Database {name} is restored only in part: the restore of {archive} is not finished or not accepted",
            evidence={"database": name, "archive": archive, "connection_limit": one.connection_limit},
            advice="Resume the run if it waits, else drop the database and restore it again. To accept it as it is: "
            "ALTER DATABASE … RESET dba_console.restoring.",
        )


_MISSING = (
    JobLimits.missing_factor,
    JobLimits.missing_longest_factor,
    JobLimits.missing_runs,
    JobLimits.missing_interval_s,
    JobLimits.missing_run_s,
    JobLimits.missing_given_up,
)

_RULES: tuple[Rule, ...] = (
    Rule(
        name="dump-late",
        title="A dump, restore or other long program takes far longer than its typical duration",
        parts=("jobs", "pg.activity"),
        check=dump_late,
        settings=(
            JobLimits.late_factor,
            JobLimits.late_over_s,
        ),
        source="the median of up to sixty runs on this server",
    ),
    Rule(
        name="dump-missing",
        title="No dump has finished for longer than its typical interval",
        parts=("jobs", "pg.activity"),
        check=dump_missing,
        settings=_MISSING,
        source="the intervals between the runs on this server",
    ),
    Rule(
        name="restore-unfinished",
        title="A restore into a database was not finished, or its result was not accepted",
        parts=("pg.server", "pg.activity"),
        check=restore_unfinished,
        raise_after_s=UNFINISHED_AFTER_S,
        clear_after_s=0.0,
        source="dba-console: runbook restore",
    ),
    Rule(
        name="wal-beside-backups",
        title="Archived WAL or backups are on the file system of the data or WAL",
        parts=("host.mounts",),
        check=wal_beside_backups,
        runbook="remove-backup",
        source="PostgreSQL: continuous archiving (backup.sgml)",
    ),
)

FAMILY = Family("Dumps, restores", "jobs", _RULES, (JobLimits,))
