"""Dumps that used to come and did not: told only of what was watched."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dba_console.findings.job_phrases import are_sessions_fresh, job_evidence, job_subject, since_reading_s
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.job_sessions import job_name
from dba_console.frames.timestamps import rfc3339
from dba_console.limits.jobs import JobLimits
from dba_console.samples.jobs import Jobs, JobStatistics
from dba_console.units import human_duration

DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
"""Programs that are run again and again; a restore is not missed."""


def dump_missing(s: RuleContext) -> Iterator[Signal]:
    """Counted from the end of the last one, in its own usual intervals.

    None has finished for one and a half of its usual intervals, nor for longer than the longest interval that is usual:
    a nightly dump is missed by noon (story S2), and nights without one on weekends are no alarm. Only where all that
    time was watched, no dump of that database by another user took its place, and none is running now.
    """
    jobs = s.picture.now("jobs", Jobs)
    if jobs is None or not jobs.past or not are_sessions_fresh(s):
        return
    running = {(one.kind, one.database) for one in jobs.running}
    for past, allowed_s in _regular_dumps(s, jobs):
        age_s, watched_s = _age_s(s, jobs, past.last_ended_us), _age_s(s, jobs, past.watched_since_us)
        if age_s is None or watched_s is None or min(age_s, watched_s) < allowed_s:
            continue
        given_up = age_s > s.limits.jobs.missing_given_up * (past.interval_s or 0.0)
        if not (given_up or (past.kind, past.database) in running or _dumped_by_other_user(s, jobs, past, allowed_s)):
            yield _missing_signal(past, age_s, watched_s)


def _regular_dumps(s: RuleContext, jobs: Jobs) -> list[tuple[JobStatistics, float]]:
    """The dumps that come regularly, each with how long none may finish; found anew with each reading."""
    memo, at_us = s.memo("dump-missing"), s.picture.current["jobs"].part.at_us
    if memo.get("at_us") != at_us:
        allowed = [(past, _allowed_s(past, s.limits.jobs)) for past in jobs.past]
        memo["at_us"] = at_us
        memo["regular"] = [(past, seconds) for past, seconds in allowed if seconds is not None]
    regular: list[tuple[JobStatistics, float]] = memo["regular"]
    return regular


def _allowed_s(past: JobStatistics, limits: JobLimits) -> float | None:
    """How long none may finish, seconds; None for a job of which that cannot be said."""
    if past.kind not in DUMPS or past.runs < limits.missing_runs or past.intervals < limits.missing_runs - 1:
        return None
    if past.interval_s is None or past.interval_s < limits.missing_interval_s:
        return None
    if past.usual_s is None or past.usual_s < limits.missing_run_s:
        return None
    longest_s = past.longest_interval_s or past.interval_s
    return max(limits.missing_factor * past.interval_s, limits.missing_longest_factor * longest_s)


def _dumped_by_other_user(s: RuleContext, jobs: Jobs, past: JobStatistics, allowed_s: float) -> bool:
    """Whether another user dumps that database now."""
    for other in jobs.past:
        if (other.kind, other.database) == (past.kind, past.database) and other is not past:
            age_s = _age_s(s, jobs, other.last_ended_us)
            if age_s is not None and age_s < allowed_s:
                return True
    return False


def _missing_signal(past: JobStatistics, age_s: float, watched_s: float) -> Signal:
    name, every = job_name(past.kind, past.database), human_duration(past.interval_s)
    last_us = past.last_ended_us or 0
    if watched_s >= age_s:
        text = f"No {name} has finished for {human_duration(age_s)}, usually every {every}; the last one did at "
    else:
        text = f"No {name} finished in the {human_duration(watched_s)} watched, usually every {every}; the last seen "
        text += "did at "
    return Signal(
        severity="warning",
        subject=job_subject(past.key),
        text=text + _local_time_text(last_us),
        evidence={
            **job_evidence(past.key),
            "last_ended": rfc3339(past.last_ended_us),
            "last_ended_age_s": round(age_s, 1),
            "interval_s": past.interval_s,
            "longest_interval_s": past.longest_interval_s,
            "usual_s": past.usual_s,
            "runs": past.runs,
            "watched_age_s": round(watched_s, 1),
        },
        advice="Look at the timer or cron job that starts it, and at its last output.",
    )


def _age_s(s: RuleContext, jobs: Jobs, wall_us: int | None) -> float | None:
    """How long ago a moment of the part is, by the clock no one sets; None where unknown or still to come."""
    if wall_us is None or wall_us > jobs.now_us:
        return None
    return (jobs.now_us - wall_us) / 1e6 + since_reading_s(s)


def _local_time_text(wall_us: int) -> str:
    """Local time of the host, as the log has it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(wall_us // 1_000_000))
    except (OverflowError, ValueError, OSError):
        return "an unknown time"
