"""Findings about locks: a queue behind a lock of DDL, a session that holds others up, a dump that does.

One wait is told once: what stands in a queue is told by the queue, what a session idle in transaction holds up by that
rule (idle_transactions.py), what a dump holds up by the dump; `lock-blocker` tells the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.findings import whose
from dba_console.findings.lasting import latched, while_unread
from dba_console.findings.lockwaits import Blocker, Waits, waits_of
from dba_console.findings.rule import Rule
from dba_console.findings.signal import Signal, Value
from dba_console.findings.situation import Situation
from dba_console.samples.postgres import Activity, Lock
from dba_console.units import human_duration

SERIES = ("locks.waiting", "connections.active")


@dataclass(frozen=True, slots=True)
class Queue:
    """Somebody who waits for a lock on a relation, and those who wait behind him."""

    waiter: Lock
    behind: int
    waited_s: float
    roots: tuple[int, ...]
    """Who ends it, the oldest transaction first."""


def queue_of(s: Situation, waits: Waits) -> Queue | None:
    """The longest queue behind a wait for a relation, None where there is none of a length worth telling.

    An open finding stays while anybody is behind.
    """
    least = 1 if s.is_open("lock-queue") else s.limits.locks.queue_behind
    found = [(waits.behind(lock.pid), waits.waited_s(lock), lock) for lock in waits.asks_for_a_relation()]
    found = [each for each in found if each[0] >= least]
    if not found:
        return None
    behind, waited_s, waiter = max(found, key=lambda each: each[:2])
    roots = waits.roots_of(waiter.pid)
    return Queue(waiter, behind, waited_s, tuple(roots)) if roots else None


def lock_queue(s: Situation) -> Iterator[Signal]:
    """A wait for a strong lock with others queued behind it, who are let in only when it had its turn or gave up.

    Three behind, since two may be one page of an application; critical from ten on, or five for ten seconds: by then a
    pool of ordinary size (ten per process) stands still. PostgreSQL's lock manager serves waiters in order (README of
    storage/lmgr), so a dump that lets everybody read stops the house as soon as somebody asks for ACCESS EXCLUSIVE.
    """
    waits, memo = waits_of(s), s.memo("lock-queue")
    queue = None if waits is None else queue_of(s, waits)
    if queue is None:
        memo.clear()
        return
    limits = s.limits.locks
    many = queue.behind >= limits.queue_critical_behind and queue.waited_s >= limits.queue_critical_least_s
    long = queue.behind >= limits.queue_long_behind and queue.waited_s >= limits.queue_long_s
    critical = latched(memo, "critical", at=many or long, until=queue.behind >= limits.queue_behind)
    root, waiter = queue.roots[0], _waiter(s, queue.waiter)
    more = f" and {len(queue.roots) - 1} more" if len(queue.roots) > 1 else ""
    relation = whose.name(queue.waiter.relation)
    effect = f"{whose.sessions(queue.behind)} behind {waiter} on {relation}, itself waiting {_time(queue.waited_s)}"
    yield Signal(
        severity="critical" if critical else "warning",
        text=f"{effect} for {whose.root(s, root)}{more}",
        effect=effect,
        evidence={
            "behind": queue.behind,
            "waiter_pid": queue.waiter.pid,
            "waiter_mode": queue.waiter.mode,
            "relation": relation,
            "wait_s": round(queue.waited_s, 1),
            **_root_evidence(s, root),
        },
        series=SERIES,
        since_us=None if queue.waiter.wait_start is None else s.host_us(queue.waiter.wait_start),
        runbook="lock-queue",
        advice=f"Cancel the one in front (select pg_cancel_backend({queue.waiter.pid})): the queue behind it moves on.",
    )


def _waiter(s: Situation, lock: Lock) -> str:
    """`migration (app, pid 8123: alter table orders add note text)`."""
    row = s.facts.by_pid.get(lock.pid)
    if row is None:
        return f"pid {lock.pid} ({lock.mode})"
    said = whose.statement(row.query) or lock.mode
    return f"{whose.application(row)} (pid {row.pid}: {said})"


def dump_blocks(s: Situation) -> Iterator[Signal]:
    """A dump, a restore or another of PostgreSQL's programs holds others up.

    A dump takes ACCESS SHARE on all its tables until it ends (documentation of pg_dump), which holds up nothing but
    DDL; with a queue behind that DDL it is `lock-queue` that tells it.
    """
    for one in _telling(s, "dump-blocks", jobs=True):
        yield _blocking(s, "dump-blocks", one, "lock-queue")


def lock_blocker(s: Situation) -> Iterator[Signal]:
    """A session, or a prepared transaction, that holds others up for longer than ordinary work does.

    Ten seconds, or two with five behind it: ordinary waits for a row are as short as the transaction that wrote it,
    and deadlock_timeout, from which on PostgreSQL calls a wait worth logging (log_lock_waits), is one second.
    """
    for one in _telling(s, "lock-blocker", jobs=False):
        yield _blocking(s, "lock-blocker", one, "lock-queue")


def _telling(s: Situation, rule: str, *, jobs: bool) -> list[Blocker]:
    """The root this rule tells: the one with most behind it that no other rule tells."""
    waits = waits_of(s)
    if waits is None:
        s.memo(rule).clear()
        return []
    queue = queue_of(s, waits)
    queued = () if queue is None else queue.roots
    for one in waits.blockers:
        row = s.facts.by_pid.get(one.pid)
        is_job = row is not None and whose.job_kind(row) is not None
        elsewhere = one.pid in queued or (not is_job and whose.is_left_open(s, row))
        if is_job is jobs and not elsewhere and _holds_up(s, one, rule):
            return [one]
    s.memo(rule).clear()
    return []


def _holds_up(s: Situation, one: Blocker, rule: str) -> bool:
    """Whether it is worth telling; one that is told already stays while it holds anybody up for a second."""
    limits = s.limits.locks
    if s.is_open(rule) and one.blocks_s >= min(1.0, limits.blocker_many_s):
        return True
    many = one.behind >= limits.blocker_many and one.blocks_s >= limits.blocker_many_s
    return many or one.blocks_s >= limits.blocker_s


def _blocking(s: Situation, rule: str, one: Blocker, runbook: str) -> Signal:
    limits = s.limits.locks
    first = one.direct[0]
    waiter = s.facts.by_pid.get(first.pid)
    said = "" if waiter is None else f", first {whose.application(waiter)}{_query(waiter)}"
    what = whose.name(first.relation) if first.relation else f"a lock of type {whose.name(first.locktype)}"
    text = f"{whose.sessions(one.behind)} for {whose.root(s, one.pid)}"
    critical = latched(
        s.memo(rule),
        "critical",
        at=one.behind >= limits.blocker_critical_behind and one.blocks_s >= limits.blocker_critical_s,
        until=one.behind >= limits.blocker_many,
    )
    return Signal(
        severity="critical" if critical else "warning",
        text=f"{text}; {what} for {_time(one.blocks_s)}{said}",
        effect=text,
        cause=text,
        evidence={
            "behind": one.behind,
            "blocks_s": round(one.blocks_s, 1),
            "waiter_pid": first.pid,
            "waiter_mode": first.mode,
            "relation": what,
            **_root_evidence(s, one.pid),
        },
        series=SERIES,
        since_us=s.now_us - int(one.blocks_s * 1e6),
        runbook=runbook,
        advice=_advice(one.pid),
    )


def _query(row: Activity) -> str:
    said = whose.statement(row.query)
    return f": {said}" if said else ""


def _advice(pid: int) -> str:
    if pid == 0:
        return "Ask the transaction manager; COMMIT PREPARED or ROLLBACK PREPARED ends it, a restart does not."
    return f"Ask its owner first; select pg_cancel_backend({pid}) ends the statement, not the transaction around it."


def _root_evidence(s: Situation, pid: int) -> dict[str, Value]:
    row = s.facts.by_pid.get(pid)
    if row is None:
        return {"root_pid": pid}
    return {
        "root_pid": pid,
        "root_application": whose.name(row.application),
        "root_user": whose.name(row.user),
        "root_state": row.state,
        "root_query": whose.statement(row.query),
    }


def _time(seconds: float) -> str:
    return human_duration(seconds)


_BLOCKER = ("locks.blocker_s", "locks.blocker_many", "locks.blocker_many_s", "locks.blocker_critical_behind",
            "locks.blocker_critical_s")  # fmt: skip

RULES: tuple[Rule, ...] = (
    Rule(
        name="lock-queue",
        title="Sessions queue behind one that waits for a strong lock on a relation, as an ALTER TABLE does",
        parts=("pg.locks",),
        look=while_unread("pg.locks", lock_queue),
        # Two readings: what was over within a second is seen in one.
        raise_after_s=0.5,
        clear_after_s=5.0,
        settings=("locks.queue_behind", "locks.queue_critical_behind", "locks.queue_critical_least_s",
                  "locks.queue_long_behind", "locks.queue_long_s"),
        source="PostgreSQL: Explicit Locking (13.3), src/backend/storage/lmgr/README",
    ),
    Rule(
        name="dump-blocks",
        title="A dump, a restore or another maintenance program holds other sessions up",
        parts=("pg.locks",),
        look=while_unread("pg.locks", dump_blocks),
        clear_after_s=5.0,
        settings=_BLOCKER,
        source="PostgreSQL: pg_dump (ACCESS SHARE on every table until it ends), story S2",
    ),
    Rule(
        name="lock-blocker",
        title="A session or a prepared transaction holds other sessions up",
        parts=("pg.locks",),
        look=while_unread("pg.locks", lock_blocker),
        clear_after_s=5.0,
        settings=_BLOCKER,
        source="PostgreSQL: deadlock_timeout, log_lock_waits (19.12); monitoring reads pg_blocking_pids()",
    ),
)  # fmt: skip
