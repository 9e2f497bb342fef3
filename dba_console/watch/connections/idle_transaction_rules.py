"""The finding `idle-in-transaction`: a session idle in transaction, and its effect on other sessions and VACUUM.

One finding names the worst session; a hundred of an application that forgets to commit are one problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.core.clock import age_s
from dba_console.core.units import human_count, human_duration
from dba_console.watch.findings import phrases
from dba_console.watch.findings.rule import SEVERITY_RANKS, Rule, RuleContext, Signal, keep_signals_briefly
from dba_console.watch.idle_transactions import IdleTransactionLimits
from dba_console.watch.lock_waits import LockBlocker, current_waits
from dba_console.watch.safety.readings import Xids
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.postgres import Activity, Sessions
from dba_console.watch.session_states import IN_TRANSACTION, is_client


@dataclass(frozen=True, slots=True)
class IdleTransaction:
    """A session idle in transaction that is reported."""

    row: Activity
    severity: Severity
    idle_s: float
    xact_s: float | None
    behind: int
    blocks_s: float
    horizon_xids: int | None
    """Transactions since the oldest row version it keeps VACUUM from removing; None if it holds none."""


def idle_in_transaction(s: RuleContext) -> Iterator[Signal]:
    """A session idle in transaction blocks others, holds back VACUUM, or has been idle for a long time.

    Blocking: a warning once it has been idle for two seconds, since no application pauses that long between two
    statements of a transaction; critical with five sessions behind it for thirty seconds. Not blocking: info after a
    minute if it holds a transaction id or a snapshot, a warning after five minutes (both as in postgres-vacuum-monitor
    and pg_dba_metrics), critical only if it keeps VACUUM from what autovacuum_freeze_max_age forces it to do. Without
    either it holds only its locks: info after a quarter of an hour.
    """
    sessions = s.facts.sessions
    if sessions is None or not s.point.get("connections.idle_in_transaction", 1.0):
        return
    rows = [row for row in sessions.rows if row.state in IN_TRANSACTION and is_client(row)]
    # The leader of pg_dump -j stays idle in transaction while its workers run: dump-blocks reports it.
    rows = [row for row in rows if phrases.job_kind(row) is None]
    found = [left for row in rows if (left := _idle_transaction(s, sessions, row)) is not None]
    if found:
        worst = max(found, key=lambda left: (SEVERITY_RANKS[left.severity], left.behind, left.idle_s))
        yield _signal(s, worst, len(found) - 1)


def _idle_transaction(s: RuleContext, sessions: Sessions, row: Activity) -> IdleTransaction | None:
    limits = s.limits.of(IdleTransactionLimits)
    idle_s = age_s(sessions.now_us, row.state_change)
    if idle_s is None or idle_s < min(limits.idle_transaction_blocks_s, limits.idle_transaction_s):
        return None
    blocker = _blocker(s, row.pid)
    behind, blocks_s = (blocker.behind, blocker.blocks_s) if blocker else (0, 0.0)
    horizon = _horizon_xids(s, row)
    severity = _severity(s, row, idle_s, behind, blocks_s, horizon)
    if severity is None:
        return None
    return IdleTransaction(row, severity, idle_s, age_s(sessions.now_us, row.xact_start), behind, blocks_s, horizon)


def _blocker(s: RuleContext, pid: int) -> LockBlocker | None:
    waits = current_waits(s)
    return None if waits is None else waits.blocker(pid)


def _horizon_xids(s: RuleContext, row: Activity) -> int | None:
    xids = s.picture.now("pg.xids", Xids)
    if xids is None:
        return None
    ages = [age for xid in (row.backend_xmin, row.backend_xid) if (age := xids.age_of(xid)) is not None]
    return max(ages, default=None)


def _severity(
    s: RuleContext, row: Activity, idle_s: float, behind: int, blocks_s: float, horizon: int | None
) -> Severity | None:
    limits = s.limits.of(IdleTransactionLimits)
    forced = s.facts.number("autovacuum_freeze_max_age")
    if behind >= limits.idle_transaction_critical_behind and blocks_s >= limits.idle_transaction_critical_s:
        return "critical"
    if horizon is not None and forced is not None and horizon >= forced:
        return "critical"
    if behind and idle_s >= limits.idle_transaction_blocks_s:
        return "warning"
    if row.backend_xid is None and row.backend_xmin is None:
        return "info" if idle_s >= limits.idle_transaction_bare_s else None
    if idle_s >= limits.idle_transaction_warning_s:
        return "warning"
    return "info" if idle_s >= limits.idle_transaction_s else None


def _signal(s: RuleContext, left: IdleTransaction, others: int) -> Signal:
    row = left.row
    idle = f"{phrases.session_text(row)} is idle in transaction for {human_duration(left.idle_s)}"
    does = _effect_text(left)
    last = phrases.query_text(row.query)
    query_clause = f"; last statement: {last}" if last else ""
    more = f"; {others} more like it" if others else ""
    database = "" if row.database is None else f" in {phrases.display_name(row.database)}"
    return Signal(
        severity=left.severity,
        text=f"{idle}{database}{does}{query_clause}{more}",
        effect=f"{idle}{does}",
        cause=f"{idle}{database}{does if left.behind else ''}",
        evidence={
            "pid": row.pid,
            "application": phrases.display_name(row.application),
            "user": phrases.display_name(row.user),
            "database": phrases.display_name(row.database),
            "client": None if row.client is None else phrases.display_name(row.client),
            "state_age_s": round(left.idle_s, 1),
            "xact_age_s": None if left.xact_s is None else round(left.xact_s, 1),
            "xmin_age_xids": left.horizon_xids,
            "behind": left.behind,
            "blocks_s": round(left.blocks_s, 1),
            "last_query": last,
            "others": others,
        },
        series=("connections.idle_in_transaction", "locks.waiting"),
        since_us=s.host_us(row.xact_start),
        runbook="idle-in-transaction",
        advice=f"Ask its owner to commit or roll back; else select pg_terminate_backend({row.pid}) rolls it back.",
    )


def _effect_text(left: IdleTransaction) -> str:
    """What it does to others, after the comma."""
    if left.behind:
        return f", and {phrases.sessions_text(left.behind)} for it, the longest for {human_duration(left.blocks_s)}"
    if left.horizon_xids:
        count = human_count(left.horizon_xids)
        many = "transaction" if left.horizon_xids == 1 else "transactions"
        return f", and holds back VACUUM by {count} {many}"
    if left.row.backend_xid is not None or left.row.backend_xmin is not None:
        return ", and holds back VACUUM"
    return ", and holds its locks"


IDLE_IN_TRANSACTION = Rule(
    name="idle-in-transaction",
    title="A session idle in transaction blocks other sessions, holds back VACUUM, or has been idle for a long time",
    parts=("pg.activity",),
    check=keep_signals_briefly("pg.activity", idle_in_transaction),
    clear_after_s=5.0,
    settings=(
        IdleTransactionLimits.idle_transaction_s,
        IdleTransactionLimits.idle_transaction_warning_s,
        IdleTransactionLimits.idle_transaction_bare_s,
        IdleTransactionLimits.idle_transaction_blocks_s,
        IdleTransactionLimits.idle_transaction_critical_behind,
        IdleTransactionLimits.idle_transaction_critical_s,
    ),
    source="PostgreSQL: idle_in_transaction_session_timeout (19.11), Routine Vacuuming (24.1)",
    runbook="idle-in-transaction",
)
