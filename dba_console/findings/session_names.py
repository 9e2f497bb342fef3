"""How a session is named in a sentence: by what people call it, with its process id to act on.

Everything here was written by a client; it enters through `clean()` and is cut to a length that leaves room for the
rest of the sentence. Queries were redacted where they were read.
"""

from __future__ import annotations

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Value
from dba_console.frames.connections import IN_TRANSACTION
from dba_console.frames.job_sessions import find_jobs
from dba_console.frames.timestamps import age_s
from dba_console.samples.postgres import WITHHELD, Activity, Horizon
from dba_console.sanitize import clean
from dba_console.units import human_duration

LONGEST_QUERY = 80
LONGEST_NAME = 40
_HIDDEN = "<insufficient privilege>"
"""What PostgreSQL gives for a query one may not see (pgstatfuncs.c)."""
DUMPS = ("pg_dump", "pg_dumpall")
RESTORES = ("pg_restore",)


def display_name(text: str | None) -> str:
    """A role, application or table as it stands in a sentence; `?` where it is not known."""
    if not text:
        return "?"
    text = clean(text)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def query_text(query: str) -> str:
    """A query on one line, cut at 80 signs; nothing where this role may not see it, or it is not to be read.

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
    """`orders-api (app, pid 812)`, without an application `app (pid 812)`."""
    if row.application:
        return f"{display_name(row.application)} ({display_name(row.user)}, pid {row.pid})"
    return f"{display_name(row.user)} (pid {row.pid})"


def owner_text(row: Activity) -> str:
    """What an operator would call its owner: the application, else the user."""
    return display_name(row.application or row.user)


def job_kind(row: Activity) -> str | None:
    """`dump`, `restore` or `job` where the session belongs to one of PostgreSQL's programs, else None."""
    jobs = find_jobs([row])
    if not jobs:
        return None
    return "dump" if jobs[0].kind in DUMPS else "restore" if jobs[0].kind in RESTORES else "job"


def is_wraparound_vacuum(row: Activity) -> bool:
    """An autovacuum that does not give way to a waiter (autovacuum.c puts the words into the activity)."""
    return row.backend_type == "autovacuum worker" and "(to prevent wraparound)" in row.query


def is_long_idle_in_transaction(s: RuleContext, row: Activity | None) -> bool:
    """Idle in a transaction for so long that what waits behind it is `idle-in-transaction`."""
    if row is None or row.state not in IN_TRANSACTION:
        return False
    idle_s = age_s(s.facts.server_time_us("pg.activity"), row.state_change)
    return idle_s is not None and idle_s >= s.limits.connections.idle_transaction_blocks_s


def root_blocker_text(s: RuleContext, pid: int) -> str:
    """Who holds what others wait for, with what it is doing: the words after `for`."""
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
    """The same as numbers and names of the evidence."""
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
    """A prepared transaction by its name where there is only one; the server does not say which it is."""
    horizon = s.picture.now("pg.horizon", Horizon)
    rows = [] if horizon is None else [row for row in horizon.rows if row.kind == "prepared"]
    if len(rows) == 1:
        return f"the prepared transaction {display_name(rows[0].who)}"
    return "a prepared transaction" + (f", one of {len(rows)}" if rows else "")


def sessions_text(count: int, verb: str = "wait") -> str:
    """`1 session waits`, `18 sessions wait`."""
    return f"{count} session {verb}s" if count == 1 else f"{count} sessions {verb}"
