"""Text pieces of finding sentences: names of sessions and file systems, past and future times, jobs.

Names and queries come from clients: they pass `clean()` and are cut to leave space for the rest of the sentence.
Queries were redacted when they were read.
"""

from __future__ import annotations

from datetime import datetime

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.watch.findings.rule import RuleContext, Value
from dba_console.watch.frames.rates import share_pct
from dba_console.watch.job_sessions import find_jobs
from dba_console.watch.safety.readings import Horizon
from dba_console.watch.samples.host import Mount, Mounts
from dba_console.watch.samples.postgres import WITHHELD, Activity
from dba_console.watch.session_states import IN_TRANSACTION

LONGEST_QUERY = 80
LONGEST_NAME = 40
_HIDDEN = "<insufficient privilege>"
"""What PostgreSQL shows for a query this role may not see (pgstatfuncs.c)."""
DUMPS = ("pg_dump", "pg_dumpall")
RESTORES = ("pg_restore",)


def display_name(text: str | None) -> str:
    """Return a role, application or table as shown in a sentence; `?` if not known."""
    if not text:
        return "?"
    text = clean(text)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def query_text(query: str) -> str:
    """Return a query on one line, cut at 80 characters; empty if this role may not see it, or it is withheld.

    >>> query_text("update t\\n   set a = 1;"), len(query_text("select " + "x" * 100))
    ('update t set a = 1', 80)
    >>> query_text("<insufficient privilege>")
    ''
    """
    if query in (_HIDDEN, WITHHELD):
        return ""
    text = clean(" ".join(query[: 4 * LONGEST_QUERY].split()).rstrip("; "))
    return text if len(text) <= LONGEST_QUERY else text[: LONGEST_QUERY - 1] + "…"


def session_text(row: Activity) -> str:
    """Return `orders-api (app, pid 812)`, without an application `app (pid 812)`."""
    if row.application:
        return f"{display_name(row.application)} ({display_name(row.user)}, pid {row.pid})"
    return f"{display_name(row.user)} (pid {row.pid})"


def owner_text(row: Activity) -> str:
    """Return the application, else the user."""
    return display_name(row.application or row.user)


def job_kind(row: Activity) -> str | None:
    """Return `dump`, `restore` or `job` if the session belongs to a PostgreSQL program, else None."""
    jobs = find_jobs([row])
    if not jobs:
        return None
    return "dump" if jobs[0].kind in DUMPS else "restore" if jobs[0].kind in RESTORES else "job"


def is_wraparound_vacuum(row: Activity) -> bool:
    """Whether it is an autovacuum that does not yield to lock requests (autovacuum.c marks its activity)."""
    return row.backend_type == "autovacuum worker" and "(to prevent wraparound)" in row.query


def root_blocker_text(s: RuleContext, pid: int) -> str:
    """Return the root blocker and what it is doing: the text after `for`."""
    if pid == 0:
        return prepared_transaction_text(s)
    row = s.facts.by_pid.get(pid)
    if row is None:
        return f"pid {pid}"
    now_us = s.facts.server_time_us("pg.activity")
    opened = age_s(now_us, row.xact_start)
    since = "" if opened is None else f", transaction open for {human_duration(opened)}"
    kind = job_kind(row)
    if kind is not None:
        return f"the {kind} {session_text(row)}{since}"
    if is_wraparound_vacuum(row):
        return f"a vacuum against wraparound (pid {row.pid}): {query_text(row.query)}"
    if row.state in IN_TRANSACTION:
        return f"{session_text(row)}, idle in transaction for {human_duration(age_s(now_us, row.state_change))}"
    if row.state is not None and query_text(row.query):
        return f"{session_text(row)}{since}: {query_text(row.query)}"
    return f"{session_text(row)}{since}"


def root_blocker_evidence(s: RuleContext, pid: int) -> dict[str, Value]:
    """Return the root blocker as evidence."""
    row = s.facts.by_pid.get(pid)
    if row is None:
        return {"root_pid": pid}
    return {
        "root_pid": pid,
        "root_application": display_name(row.application),
        "root_user": display_name(row.user),
        "root_state": row.state,
        "root_query": query_text(row.query),
    }


def prepared_transaction_text(s: RuleContext) -> str:
    """Return the prepared transaction by name if there is only one; the server does not say which one blocks."""
    horizon = s.picture.now("pg.horizon", Horizon)
    rows = [] if horizon is None else [row for row in horizon.rows if row.kind == "prepared"]
    if len(rows) == 1:
        return f"the prepared transaction {display_name(rows[0].who)}"
    return "a prepared transaction" + (f", one of {len(rows)}" if rows else "")


def sessions_text(count: int) -> str:
    """`1 session waits`, `18 sessions wait`."""
    return "1 session waits" if count == 1 else f"{count} sessions wait"


def round_number(number: float | None) -> float | None:
    """Return a number for the evidence, with one digit: more would be noise, and change in every tick."""
    return None if number is None else round(number, 1)


# Past and future times in sentences.
#
# Local time, as on the screen; a date if it is another day; nothing beyond a year, which no rate can predict.

YEAR_S = 365 * 86_400.0
_HOUR_S = 3600.0
_DAY_S = 86_400.0


def past_time_text(wall_us: int, now_us: int) -> str:
    """`at 14:53:07` on the day of `now_us`, else `on Nov 18 14:53`, with the year where it is another."""
    moment, now = datetime.fromtimestamp(wall_us / 1e6), datetime.fromtimestamp(now_us / 1e6)
    if moment.date() == now.date():
        return f"at {moment:%H:%M:%S}"
    if moment.year == now.year:
        return f"on {moment:%b} {moment.day} {moment:%H:%M}"
    return f"on {moment:%Y-%m-%d}"


def future_time_text(seconds: float, now_us: int) -> str:
    """`now`, `in 3m20s`, `in 5h10, at 19:40`, `in 41d, on Dec 31`; from a year on `not within a year`."""
    if seconds <= 0:
        return "now"
    if seconds >= YEAR_S:
        return "not within a year"
    text = f"in {human_duration(seconds)}"
    if seconds < _HOUR_S:
        return text
    moment, now = datetime.fromtimestamp(now_us / 1e6 + seconds), datetime.fromtimestamp(now_us / 1e6)
    if moment.date() == now.date():
        return f"{text}, at {moment:%H:%M}"
    if seconds < 7 * _DAY_S:
        return f"{text}, on {moment:%b} {moment.day} {moment:%H:%M}"
    return f"{text}, on {moment:%b} {moment.day}" + (f" {moment.year}" if moment.year != now.year else "")


# File systems in sentences: the mount point, and what of PostgreSQL is on it.

_NAMES = {"data": "data", "wal": "WAL", "temp": "temporary files", "session": "recordings"}
_SERVER = ("data", "wal", "temp")


def mounts_of(s: RuleContext) -> list[Mount]:
    """Return the file systems that PostgreSQL or the console uses; empty if the server is not on this host."""
    mounts = s.facts.picture.now("host.mounts", Mounts)
    return [] if mounts is None else [mount for mount in mounts.mounts if mount.holds]


def belongs_to_server(held: str) -> bool:
    """Whether PostgreSQL needs it to run: not an archive, a log or a recording."""
    return held in _SERVER or held.startswith("tablespace:")


def holds_server(mount: Mount) -> bool:
    """Whether the server stops, or its queries fail, when this file system is full."""
    return any(map(belongs_to_server, mount.holds))


def mount_text(mount: Mount) -> str:
    """Return the mount with its contents: `/srv/pg (data, WAL)`."""
    held = [_NAMES.get(name, name.replace(":", " ", 1)) for name in mount.holds]
    if "data" in held and "temporary files" in held:
        held.remove("temporary files")  # they are in the data directory unless temp_tablespaces moved them
    return f"{clean(mount.path)} ({', '.join(clean(name) for name in held)})"


def share_used(mount: Mount) -> float | None:
    """Return the used percentage as df shows it: of the space available to an unprivileged writer."""
    return (
        None if mount.used is None or mount.available is None else share_pct(mount.used, mount.used + mount.available)
    )
