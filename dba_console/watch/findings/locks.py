"""Findings about locks: a queue behind a lock of DDL, a session that holds others up, a dump that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.core.units import human_duration
from dba_console.watch.findings import phrases
from dba_console.watch.findings.lock_waits import LockBlocker, LockWaits, current_waits
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_briefly, latch
from dba_console.watch.samples.postgres import Activity, LockWaiter

# The finding `lock-queue`: sessions queue behind one that waits for a strong lock on a relation.
#
# Which waits are part of such a queue is asked by the rules about blockers too: one wait is told once.

SERIES = ("locks.waiting", "connections.active")


@dataclass(frozen=True, slots=True)
class LockWaitQueue:
    """Somebody who waits for a lock on a relation, and those who wait behind him."""

    waiter: LockWaiter
    behind: int
    waited_s: float
    roots: tuple[int, ...]
    """Who ends it, the oldest transaction first."""


def longest_queue(s: RuleContext, waits: LockWaits) -> LockWaitQueue | None:
    """The longest queue behind a wait for a relation, None where there is none of a length worth telling.

    An open finding stays while anybody is behind.
    """
    least = 1 if s.is_open("lock-queue") else s.limits.locks.queue_behind
    found = [(waits.behind(lock.pid), waits.waited_s(lock), lock) for lock in waits.strong_relation_locks()]
    found = [each for each in found if each[0] >= least]
    if not found:
        return None
    behind, waited_s, waiter = max(found, key=lambda each: each[:2])
    roots = waits.roots_of(waiter.pid)
    return LockWaitQueue(waiter, behind, waited_s, tuple(roots)) if roots else None


def lock_queue(s: RuleContext) -> Iterator[Signal]:
    """A wait for a strong lock with others queued behind it, who are let in only when it had its turn or gave up.

    Three behind, since two may be one page of an application; critical from ten on, or five for ten seconds: by then a
    pool of ordinary size (ten per process) stands still. PostgreSQL's lock manager serves waiters in order (README of
    storage/lmgr), so a dump that lets everybody read stops the house as soon as somebody asks for ACCESS EXCLUSIVE.
    """
    waits, memo = current_waits(s), s.memo("lock-queue")
    queue = None if waits is None else longest_queue(s, waits)
    if queue is None:
        memo.clear()
        return
    limits = s.limits.locks
    many = queue.behind >= limits.queue_critical_behind and queue.waited_s >= limits.queue_critical_least_s
    long = queue.behind >= limits.queue_long_behind and queue.waited_s >= limits.queue_long_s
    critical = latch(memo, "critical", at=many or long, until=queue.behind >= limits.queue_behind)
    root, waiter = queue.roots[0], _waiter_text(s, queue.waiter)
    more = f" and {len(queue.roots) - 1} more" if len(queue.roots) > 1 else ""
    relation = phrases.display_name(queue.waiter.relation)
    effect = (
        f"{phrases.sessions_text(queue.behind)} behind {waiter} on {relation}, itself waiting "
        f"{human_duration(queue.waited_s)}"
    )
    yield Signal(
        severity="critical" if critical else "warning",
        text=f"{effect} for {phrases.root_blocker_text(s, root)}{more}",
        effect=effect,
        evidence={
            "behind": queue.behind,
            "waiter_pid": queue.waiter.pid,
            "waiter_mode": queue.waiter.mode,
            "relation": relation,
            "wait_s": round(queue.waited_s, 1),
            **phrases.root_blocker_evidence(s, root),
        },
        series=SERIES,
        since_us=None if queue.waiter.wait_start is None else s.host_us(queue.waiter.wait_start),
        runbook="lock-queue",
        advice=f"Cancel the one in front (select pg_cancel_backend({queue.waiter.pid})): the queue behind it moves on.",
    )


def _waiter_text(s: RuleContext, lock: LockWaiter) -> str:
    """`migration (app, pid 8123: alter table orders add note text)`."""
    row = s.facts.by_pid.get(lock.pid)
    if row is None:
        return f"pid {lock.pid} ({lock.mode})"
    query = phrases.query_text(row.query) or lock.mode
    return f"{phrases.owner_text(row)} (pid {row.pid}: {query})"


LOCK_QUEUE = Rule(
    name="lock-queue",
    title="Sessions queue behind one that waits for a strong lock on a relation, as an ALTER TABLE does",
    parts=("pg.locks",),
    check=keep_signals_briefly("pg.locks", lock_queue),
    # Two readings: what was over within a second is seen in one.
    raise_after_s=0.5,
    clear_after_s=5.0,
    settings=("locks.queue_behind", "locks.queue_critical_behind", "locks.queue_critical_least_s",
              "locks.queue_long_behind", "locks.queue_long_s"),
    source="PostgreSQL: Explicit Locking (13.3), src/backend/storage/lmgr/README",
    runbook="lock-queue",
)  # fmt: skip


# The findings `lock-blocker` and `dump-blocks`: somebody holds others up for longer than ordinary work does.
#
# One wait is told once: what stands in a queue is told by `lock-queue`, what a session idle in transaction holds up by
# that rule (idle_transactions.py), what a dump holds up by the dump, the rest here.


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
        is_job = row is not None and phrases.job_kind(row) is not None
        elsewhere = one.pid in queued or (not is_job and phrases.is_long_idle_in_transaction(s, row))
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
    who = "" if waiter is None else f", {phrases.owner_text(waiter)},"
    query_clause = "" if waiter is None else _query_clause(waiter)
    what = (
        phrases.display_name(first.relation)
        if first.relation
        else f"a lock of type {phrases.display_name(first.locktype)}"
    )
    text = f"{phrases.sessions_text(one.behind)} for {phrases.root_blocker_text(s, one.pid)}"
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
            **phrases.root_blocker_evidence(s, one.pid),
        },
        series=SERIES,
        since_us=s.now_us - int(one.blocks_s * 1e6),
        runbook=runbook,
        advice=_advice(one.pid),
    )


def _query_clause(row: Activity) -> str:
    text = phrases.query_text(row.query)
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


RULES: tuple[Rule, ...] = (LOCK_QUEUE, DUMP_BLOCKS, LOCK_BLOCKER)
