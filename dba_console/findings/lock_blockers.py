"""The findings `lock-blocker` and `dump-blocks`: somebody holds others up for longer than ordinary work does.

One wait is told once: what stands in a queue is told by `lock-queue`, what a session idle in transaction holds up by
that rule (idle_transactions.py), what a dump holds up by the dump, the rest here.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings import session_names
from dba_console.findings.hysteresis import keep_signals_briefly, latch
from dba_console.findings.lock_queue import SERIES, longest_queue
from dba_console.findings.lock_waits import LockBlocker, current_waits
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.samples.postgres import Activity
from dba_console.units import human_duration


def dump_blocks(s: RuleContext) -> Iterator[Signal]:
    """A dump, a restore or another of PostgreSQL's programs holds others up.

    A dump takes ACCESS SHARE on all its tables until it ends (documentation of pg_dump), which holds up nothing but
    DDL; with a queue behind that DDL it is `lock-queue` that tells it.
    """
    for one in _find_root(s, "dump-blocks", jobs=True):
        yield _blocker_signal(s, "dump-blocks", one, "lock-queue")


def lock_blocker(s: RuleContext) -> Iterator[Signal]:
    """A session, or a prepared transaction, that holds others up for longer than ordinary work does.

    Ten seconds, or two with five behind it: ordinary waits for a row are as short as the transaction that wrote it,
    and deadlock_timeout, from which on PostgreSQL calls a wait worth logging (log_lock_waits), is one second.
    """
    for one in _find_root(s, "lock-blocker", jobs=False):
        yield _blocker_signal(s, "lock-blocker", one, "lock-queue")


def _find_root(s: RuleContext, rule: str, *, jobs: bool) -> list[LockBlocker]:
    """The root this rule tells: the one with most behind it that no other rule tells."""
    waits = current_waits(s)
    if waits is None:
        s.memo(rule).clear()
        return []
    queue = longest_queue(s, waits)
    queued = () if queue is None else queue.roots
    for one in waits.blockers:
        row = s.facts.by_pid.get(one.pid)
        is_job = row is not None and session_names.job_kind(row) is not None
        elsewhere = one.pid in queued or (not is_job and session_names.is_long_idle_in_transaction(s, row))
        if is_job is jobs and not elsewhere and _is_reportable(s, one, rule):
            return [one]
    s.memo(rule).clear()
    return []


def _is_reportable(s: RuleContext, one: LockBlocker, rule: str) -> bool:
    """Whether it is worth telling; one that is told already stays while it holds anybody up for a second."""
    limits = s.limits.locks
    if s.is_open(rule) and one.blocks_s >= min(1.0, limits.blocker_many_s):
        return True
    many = one.behind >= limits.blocker_many and one.blocks_s >= limits.blocker_many_s
    return many or one.blocks_s >= limits.blocker_s


def _blocker_signal(s: RuleContext, rule: str, one: LockBlocker, runbook: str) -> Signal:
    limits = s.limits.locks
    first = one.direct[0]
    waiter = s.facts.by_pid.get(first.pid)
    who = "" if waiter is None else f", {session_names.owner_text(waiter)},"
    query_clause = "" if waiter is None else _query_clause(waiter)
    what = (
        session_names.display_name(first.relation)
        if first.relation
        else f"a lock of type {session_names.display_name(first.locktype)}"
    )
    text = f"{session_names.sessions_text(one.behind)} for {session_names.root_blocker_text(s, one.pid)}"
    critical = latch(
        s.memo(rule),
        "critical",
        at=one.behind >= limits.blocker_critical_behind and one.blocks_s >= limits.blocker_critical_s,
        until=one.behind >= limits.blocker_many,
    )
    return Signal(
        severity="critical" if critical else "warning",
        text=f"{text}; the first{who} waits {human_duration(one.blocks_s)} for {what}{query_clause}",
        effect=text,
        cause=text,
        evidence={
            "behind": one.behind,
            "blocks_s": round(one.blocks_s, 1),
            "waiter_pid": first.pid,
            "waiter_mode": first.mode,
            "relation": what,
            **session_names.root_blocker_evidence(s, one.pid),
        },
        series=SERIES,
        since_us=s.now_us - int(one.blocks_s * 1e6),
        runbook=runbook,
        advice=_advice(one.pid),
    )


def _query_clause(row: Activity) -> str:
    text = session_names.query_text(row.query)
    return f": {text}" if text else ""


def _advice(pid: int) -> str:
    if pid == 0:
        return "Ask the transaction manager; COMMIT PREPARED or ROLLBACK PREPARED ends it, a restart does not."
    return f"Ask its owner first; select pg_cancel_backend({pid}) ends the statement, not the transaction around it."


_BLOCKER = ("locks.blocker_s", "locks.blocker_many", "locks.blocker_many_s", "locks.blocker_critical_behind",
            "locks.blocker_critical_s")  # fmt: skip

DUMP_BLOCKS = Rule(
    name="dump-blocks",
    title="A dump, a restore or another maintenance program holds other sessions up",
    parts=("pg.locks",),
    check=keep_signals_briefly("pg.locks", dump_blocks),
    clear_after_s=5.0,
    settings=_BLOCKER,
    source="PostgreSQL: pg_dump (ACCESS SHARE on every table until it ends), story S2",
    runbook="lock-queue",
)  # fmt: skip

LOCK_BLOCKER = Rule(
    name="lock-blocker",
    title="A session or a prepared transaction holds other sessions up",
    parts=("pg.locks",),
    check=keep_signals_briefly("pg.locks", lock_blocker),
    clear_after_s=5.0,
    settings=_BLOCKER,
    source="PostgreSQL: deadlock_timeout, log_lock_waits (19.12); monitoring reads pg_blocking_pids()",
    runbook="lock-queue",
)  # fmt: skip
