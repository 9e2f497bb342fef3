"""The finding `lock-queue`: sessions queue behind one that waits for a strong lock on a relation.

Which waits are part of such a queue is asked by the rules about blockers too: one wait is told once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.findings import session_names
from dba_console.findings.hysteresis import keep_signals_briefly, latch
from dba_console.findings.lock_waits import LockWaits, current_waits
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.samples.postgres import LockWaiter
from dba_console.units import human_duration

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
    relation = session_names.display_name(queue.waiter.relation)
    effect = (
        f"{session_names.sessions_text(queue.behind)} behind {waiter} on {relation}, itself waiting "
        f"{human_duration(queue.waited_s)}"
    )
    yield Signal(
        severity="critical" if critical else "warning",
        text=f"{effect} for {session_names.root_blocker_text(s, root)}{more}",
        effect=effect,
        evidence={
            "behind": queue.behind,
            "waiter_pid": queue.waiter.pid,
            "waiter_mode": queue.waiter.mode,
            "relation": relation,
            "wait_s": round(queue.waited_s, 1),
            **session_names.root_blocker_evidence(s, root),
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
    query = session_names.query_text(row.query) or lock.mode
    return f"{session_names.owner_text(row)} (pid {row.pid}: {query})"


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
