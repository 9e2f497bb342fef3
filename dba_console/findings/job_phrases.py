"""What the findings about jobs have in common: names, and times of the part `jobs` by the clock no one sets."""

from __future__ import annotations

from dba_console.findings.rule_context import RuleContext
from dba_console.samples.jobs import JobKey
from dba_console.sanitize import clean

FRESH_US = 5_000_000
"""The sessions must have been read so lately for what runs to be known."""


def job_subject(key: JobKey) -> str:
    """A job in the id of its finding.

    >>> job_subject(("pg_dump", "appdb", "backup"))
    'pg_dump/appdb/backup'
    """
    return "/".join(clean(word) for word in key if word is not None)


def job_evidence(key: JobKey) -> dict[str, str | None]:
    """A job in the evidence."""
    kind, database, user = (None if word is None else clean(word) for word in key)
    return {"kind": kind, "database": database, "user": user}


def are_sessions_fresh(s: RuleContext) -> bool:
    """Whether the sessions are seen now: while the server is lost nobody knows what runs."""
    sessions = s.picture.latest.get("pg.activity")
    return sessions is not None and sessions.part.reading is not None and s.mono_us - sessions.part.at_us < FRESH_US


def since_reading_s(s: RuleContext) -> float:
    """Seconds since the part was read."""
    return (s.mono_us - s.picture.current["jobs"].part.at_us) / 1e6
