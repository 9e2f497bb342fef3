"""Finds long work among the sessions: dumps, restores, and commands without a progress view.

A dump or restore with -j is one job with many sessions: they are grouped by their client program if the agent found it,
so that two dumps of one database at once are two jobs, else by application name, user, database and client. The server
does not know the progress of a job (no view has its plan), so a job only shows its current work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dba_console.core.sanitize import clean
from dba_console.watch.samples.postgres import Activity
from dba_console.watch.session_states import ACTIVE

JOBS = ("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "pgcopydb", "vacuumdb", "reindexdb", "clusterdb")
"""application_name as these programs set it (fallback_application_name is the program's name)."""

TRIAL_APPLICATION = "dba-console-sweep:"
"""application_name of trial dumps: they are cut, or partial, and are excluded from typical values."""

MIN_ELAPSED_S = 2.0
"""A command without a progress view counts as long work from this time on."""

_COMMENT = r"\s*(?:(?:/\*.*?\*/|--[^\n]*\n)\s*)*"
_COMMANDS = (
    ("vacuum_full", r"vacuum\s*(?:\([^)]*\bfull\b[^)]*\)|full\b)"),
    ("vacuum", r"vacuum\b"),
    ("analyze", r"analyze\b"),
    ("create_index", r"create\s+(?:unique\s+)?index\b"),
    ("reindex", r"reindex\b"),
    ("cluster", r"(?:cluster|repack)\b"),
    ("copy", r"copy\b"),
    ("alter_table", r"alter\s+table\b"),
    ("refresh", r"refresh\s+materialized\b"),
    ("create_table_as", r"create\s+(?:unlogged\s+|temp\s+|temporary\s+)?table\b.*\bas\b"),
    ("create_database", r"create\s+database\b"),
    ("checkpoint", r"checkpoint\b"),
)
_COMPILED = tuple((kind, re.compile(_COMMENT + pattern, re.I | re.S)) for kind, pattern in _COMMANDS)
_FIRST_WORD = re.compile(
    _COMMENT + r"(?:vacuum|analyze|create|reindex|cluster|repack|copy|alter|refresh|checkpoint)", re.I
)
_NAME = r'((?>(?:"(?:[^"]|"")+"|[\w$]+)(?:\.(?:"(?:[^"]|"")+"|[\w$]+))?))'
_RESERVED = frozenset({"full", "freeze", "verbose", "analyze", "analyse", "on", "using"})
"""Words of these statements that are not names."""
_OPTIONS = r"(?:\([^)]*\)\s*)?(?:(?:full|freeze|verbose|analy[sz]e|skip_locked|concurrently)\s+)*"
_AUTOVACUUM = re.compile(
    r"autovacuum: (?:VACUUM ANALYZE|VACUUM|ANALYZE) (.+?)(?: \(to prevent wraparound\))?$", re.DOTALL
)
"""Its names are not quoted (autovac_report_activity in autovacuum.c)."""
_OBJECT = re.compile(
    _COMMENT + r"(?:alter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?"
    r"|create\s+(?:unlogged\s+|temp\s+|temporary\s+)?table\s+(?:if\s+not\s+exists\s+)?"
    r"|refresh\s+materialized\s+view\s+(?:concurrently\s+)?"
    r"|create\s+(?:unique\s+)?index\s+(?:concurrently\s+)?(?:if\s+not\s+exists\s+)?(?:on\s+(?:only\s+)?)?"
    rf"|reindex\s+{_OPTIONS}(?:index|table)\s+(?:concurrently\s+)?"
    rf"|(?:vacuum|analy[sz]e|cluster|repack)\s*{_OPTIONS}"
    r"|copy\s+)" + _NAME + r"(?!\s*,\s*[\w\"])",
    re.I,
)
_LONGEST = 500


class ClientProgram(NamedTuple):
    """The program at the other end of a session."""

    kind: str
    number: int
    """Its process, or any other number unique to the job."""


@dataclass
class SessionJob:
    """The sessions of one dump, restore or similar; `leader` is the one that connected first."""

    kind: str
    leader: Activity
    sessions: list[Activity] = field(default_factory=list)
    owner: ClientProgram | None = None
    """The program they belong to; None if they are grouped only by name."""

    @property
    def pids(self) -> set[int]:
        return {row.pid for row in self.sessions}


def find_jobs(rows: list[Activity], owners: Mapping[int, ClientProgram] | None = None) -> list[SessionJob]:
    """Find the jobs among the sessions: by client program if it is known, else by application name."""
    found: dict[tuple[object, ...], SessionJob] = {}
    for row in rows:
        owner = None if owners is None else owners.get(row.pid)
        kind = _program_name(row.application) if owner is None else owner.kind
        if kind is None or row.leader_pid is not None:
            continue
        key = (row.application, row.user, row.database, row.client) if owner is None else owner
        job = found.get(key)
        if job is None:
            job = found[key] = SessionJob(kind, row, owner=owner)
        job.sessions.append(row)
        if (row.backend_start or 0, row.pid) < (job.leader.backend_start or 0, job.leader.pid):
            job.leader = row
    return list(found.values())


def job_name(kind: str, database: str | None, format: str | None = None) -> str:
    """Return the name of a job in messages; `format` of a dump that is made in several.

    >>> job_name("pg_dump", "appdb"), job_name("pg_basebackup", None), job_name("pg_dump", "appdb", "custom")
    ('pg_dump of appdb', 'pg_basebackup', 'pg_dump of appdb (custom)')
    """
    name = clean(kind) if database is None else f"{clean(kind)} of {clean(database)}"
    return name if format is None else f"{name} ({clean(format)})"


def _program_name(application: str) -> str | None:
    if application in JOBS:
        return application
    return "pgcopydb" if application.startswith("pgcopydb[") else None


def job_phase(job: SessionJob) -> str | None:
    """Return the job's phase from what its sessions run; None if all are idle."""
    return job_phase_of(job.sessions)


def job_phase_of(rows: Sequence[Activity]) -> str | None:
    """Return the phase of these sessions: data before indexes before constraints."""
    kinds = {command(row.query) for row in rows if row.state in ACTIVE}
    for kind, phase in (("copy", "data"), ("create_index", "indexes"), ("alter_table", "constraints")):
        if kind in kinds:
            return phase
    return "catalog" if any(row.state in ACTIVE for row in rows) else None


def command_object(query: str) -> str | None:
    """Return the object of a long command as the statement names it; None if it names none, or several.

    >>> command_object("ALTER TABLE IF EXISTS ONLY public.orders ADD note text"), command_object("vacuum (full) t")
    ('public.orders', 't')
    >>> command_object("autovacuum: VACUUM ANALYZE a.Two Words (to prevent wraparound)"), command_object("vacuum a, b")
    ('a.Two Words', None)
    """
    if (own := _AUTOVACUUM.match(query[:_LONGEST])) is not None:
        return own[1]
    found = _OBJECT.match(query[:_LONGEST])
    return None if found is None or found[1].lower() in _RESERVED else found[1]


def command(query: str) -> str | None:
    """Return the kind of long work of a query, None for any other.

    >>> command("/* x */ VACUUM (FULL, verbose) t"), command("create unique index i on t (a)"), command("select 1")
    ('vacuum_full', 'create_index', None)
    """
    start = query[:_LONGEST]
    # One cheap test first: nearly every query is none of these.
    if _FIRST_WORD.match(start) is None:
        return None
    return next((kind for kind, pattern in _COMPILED if pattern.match(start)), None)
