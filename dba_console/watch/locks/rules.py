"""All rules about locks, and which of them explains which: a queue behind a DDL lock, a session that blocks others, a
dump that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.core.units import human_duration
from dba_console.watch.findings import phrases
from dba_console.watch.findings.rule import (
    CausalLink,
    Family,
    Rule,
    RuleContext,
    Signal,
    effect_is,
    keep_signals_briefly,
    latch,
    same_evidence,
)
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.idle_transactions import is_long_idle_in_transaction
from dba_console.watch.lock_waits import LockBlocker, LockWaits, current_waits
from dba_console.watch.samples.postgres import Activity, LockWaiter
from dba_console.watch.session_states import IN_TRANSACTION


class LockLimits(RuleThresholds, frozen=True):
    """`[findings.locks]`."""

    family = "locks"

    queue_behind: Judgement[int] = 3
    """Sessions that wait behind one that waits for a DDL lock: from this many a warning."""
    queue_critical_behind: Judgement[int] = 10
    """From this many such sessions critical, if the DDL has waited for `queue_critical_least_s`."""
    queue_critical_least_s: Judgement[float] = 2.0
    """Minimum wait of the DDL for critical: a shorter one is an ordinary ALTER TABLE."""
    queue_long_behind: Judgement[int] = 5
    """From this many such sessions critical, if the DDL has waited for `queue_long_s`."""
    queue_long_s: Judgement[float] = 10.0
    """Wait of the DDL from which `queue_long_behind` sessions are critical."""
    blocker_s: Judgement[float] = 10.0
    """One session that blocks another for this long: a warning."""
    blocker_many: Judgement[int] = 5
    """If it blocks this many sessions, already a warning after `blocker_many_s`."""
    blocker_many_s: Judgement[float] = 2.0
    """How long `blocker_many` sessions must have been blocked for a warning."""
    blocker_critical_behind: Judgement[int] = 20
    """If it blocks this many sessions for `blocker_critical_s`: critical."""
    blocker_critical_s: Judgement[float] = 30.0
    """How long `blocker_critical_behind` sessions must have been blocked: critical."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.queue_behind, cls.queue_critical_behind), (cls.blocker_s, cls.blocker_critical_s))


# The finding `lock-queue`: sessions queue behind one that waits for a strong lock on a relation.
#
# The rules about blockers skip waits of such a queue: each wait is reported once.

SERIES = ("locks.waiting", "connections.active")


@dataclass(frozen=True, slots=True)
class LockWaitQueue:
    """A session that waits for a lock on a relation, and those that wait behind it."""

    waiter: LockWaiter
    behind: int
    waited_s: float
    roots: tuple[int, ...]
    """Its root blockers, the oldest transaction first."""


def longest_queue(s: RuleContext, waits: LockWaits) -> LockWaitQueue | None:
    """Return the longest queue behind a wait for a relation; None below the reporting length.

    An open finding stays while a session is behind.
    """
    least = 1 if s.is_open("lock-queue") else s.limits.of(LockLimits).queue_behind
    found = [(waits.behind(lock.pid), waits.waited_s(lock), lock) for lock in waits.strong_relation_locks()]
    found = [each for each in found if each[0] >= least]
    if not found:
        return None
    behind, waited_s, waiter = max(found, key=lambda each: each[:2])
    roots = waits.roots_of(waiter.pid)
    return LockWaitQueue(waiter, behind, waited_s, tuple(roots)) if roots else None


def lock_queue(s: RuleContext) -> Iterator[Signal]:
    """A wait for a strong lock with others queued behind it; they proceed only after it is granted or gives up.

    From three sessions, since one page of an application may use two; critical from ten, or from five for ten
    seconds: by then a pool of ordinary size (ten per process) is blocked. PostgreSQL's lock manager serves waiters in
    order (README of storage/lmgr), so a dump that blocks no reader blocks the whole application once ACCESS EXCLUSIVE
    is requested.
    """
    waits, memo = current_waits(s), s.memo("lock-queue")
    queue = None if waits is None else longest_queue(s, waits)
    if queue is None:
        memo.clear()
        return
    limits = s.limits.of(LockLimits)
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
        advice=f"Cancel the first waiter (select pg_cancel_backend({queue.waiter.pid})): its transaction is rolled "
        "back, and the queue behind it proceeds.",
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
    # Two readings: a wait of less than a second is in one only.
    raise_after_s=0.5,
    clear_after_s=5.0,
    settings=(
        LockLimits.queue_behind,
        LockLimits.queue_critical_behind,
        LockLimits.queue_critical_least_s,
        LockLimits.queue_long_behind,
        LockLimits.queue_long_s,
    ),
    source="PostgreSQL: Explicit Locking (13.3), src/backend/storage/lmgr/README",
    runbook="lock-queue",
)


# The findings `lock-blocker` and `dump-blocks`: a session blocks others for longer than ordinary work does.
#
# Each wait is reported once: a queue by `lock-queue`, waits for a session idle in transaction by that rule
# (idle_transactions.py), waits for a dump by `dump-blocks`, the rest here.


def dump_blocks(s: RuleContext) -> Iterator[Signal]:
    """A dump, a restore or another PostgreSQL program blocks other sessions.

    A dump holds ACCESS SHARE on all its tables until it ends (documentation of pg_dump), which blocks only DDL; a queue
    behind that DDL is reported as `lock-queue`.
    """
    for one in _find_root(s, "dump-blocks", jobs=True):
        yield _blocker_signal(s, "dump-blocks", one)


def lock_blocker(s: RuleContext) -> Iterator[Signal]:
    """A session, or a prepared transaction, blocks others for longer than ordinary work does.

    Ten seconds, or two with five sessions behind it: ordinary waits for a row are as short as the transaction that
    wrote it, and deadlock_timeout, after which PostgreSQL logs a wait (log_lock_waits), is one second.
    """
    for one in _find_root(s, "lock-blocker", jobs=False):
        yield _blocker_signal(s, "lock-blocker", one)


def _find_root(s: RuleContext, rule: str, *, jobs: bool) -> list[LockBlocker]:
    """Return the root blocker for this rule: the one with most behind it that no other rule reports."""
    waits = current_waits(s)
    if waits is None:
        s.memo(rule).clear()
        return []
    queue = longest_queue(s, waits)
    queued = () if queue is None else queue.roots
    for one in waits.blockers:
        row = s.facts.by_pid.get(one.pid)
        is_job = row is not None and phrases.job_kind(row) is not None
        elsewhere = one.pid in queued or (not is_job and is_long_idle_in_transaction(s, row))
        if is_job is jobs and not elsewhere and _is_reportable(s, one, rule):
            return [one]
    s.memo(rule).clear()
    return []


def _is_reportable(s: RuleContext, one: LockBlocker, rule: str) -> bool:
    """Whether it blocks enough to be reported; an open one stays while it blocks a session for a second."""
    limits = s.limits.of(LockLimits)
    if s.is_open(rule) and one.blocks_s >= min(1.0, limits.blocker_many_s):
        return True
    many = one.behind >= limits.blocker_many and one.blocks_s >= limits.blocker_many_s
    return many or one.blocks_s >= limits.blocker_s


def _blocker_signal(s: RuleContext, rule: str, one: LockBlocker) -> Signal:
    limits = s.limits.of(LockLimits)
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
        text=f"{text}; the first waiter{who} has waited {human_duration(one.blocks_s)} for {what}{query_clause}",
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
        runbook="lock-queue",
        advice=_advice(s, one.pid),
    )


def _query_clause(row: Activity) -> str:
    text = phrases.query_text(row.query)
    return f": {text}" if text else ""


def _advice(s: RuleContext, pid: int) -> str:
    """A cancelled statement aborts its transaction, and AbortTransaction() releases all its locks (xact.c); a session
    that runs no statement ignores a cancel request."""
    if pid == 0:
        return "Ask the transaction manager; COMMIT PREPARED or ROLLBACK PREPARED ends it, a restart does not."
    row = s.facts.by_pid.get(pid)
    if row is not None and phrases.is_wraparound_vacuum(row):
        return "Cancel the session that waits, not the vacuum: it would only start again."
    job = None if row is None else phrases.job_kind(row)
    lost = "its whole transaction is rolled back" if job is None else f"the whole {job} is lost"
    if row is not None and row.state in IN_TRANSACTION:
        return f"Ask its owner first; select pg_terminate_backend({pid}) ends it: {lost}."
    return (
        f"Ask its owner first; select pg_cancel_backend({pid}) costs more than one statement: {lost}, "
        "and all its locks are released."
    )


_BLOCKER = (
    LockLimits.blocker_s,
    LockLimits.blocker_many,
    LockLimits.blocker_many_s,
    LockLimits.blocker_critical_behind,
    LockLimits.blocker_critical_s,
)

DUMP_BLOCKS = Rule(
    name="dump-blocks",
    title="A dump, a restore or another maintenance program blocks other sessions",
    parts=("pg.locks",),
    check=keep_signals_briefly("pg.locks", dump_blocks),
    clear_after_s=5.0,
    settings=_BLOCKER,
    source="PostgreSQL: pg_dump (ACCESS SHARE on every table until it ends)",
    runbook="lock-queue",
)

LOCK_BLOCKER = Rule(
    name="lock-blocker",
    title="A session or a prepared transaction blocks other sessions",
    parts=("pg.locks",),
    check=keep_signals_briefly("pg.locks", lock_blocker),
    clear_after_s=5.0,
    settings=_BLOCKER,
    source="PostgreSQL: deadlock_timeout, log_lock_waits (19.12); monitoring reads pg_blocking_pids()",
    runbook="lock-queue",
)


FAMILY = Family(
    "Locks",
    "locks",
    (LOCK_QUEUE, DUMP_BLOCKS, LOCK_BLOCKER),
    thresholds=(LockLimits,),
    links=(
        CausalLink("lock-queue", "idle-in-transaction", applies=same_evidence("root_pid", "pid")),
        CausalLink("lock-queue", "wraparound-vacuum", applies=same_evidence("root_pid", "pid")),
        CausalLink("lock-blocker", "idle-in-transaction", applies=same_evidence("root_pid", "pid")),
        CausalLink("lock-blocker", "wraparound-vacuum", applies=same_evidence("root_pid", "pid")),
        # A queue that grew behind a single blocked session: from then on the queue is reported.
        CausalLink("dump-blocks", "lock-queue", "; ", same_evidence("root_pid", "root_pid")),
        CausalLink("lock-blocker", "lock-queue", "; ", same_evidence("root_pid", "root_pid")),
        # An active session that blocks others while the disk is stalled is itself blocked.
        CausalLink("lock-blocker", "io-stalled", applies=effect_is("root_state", "active")),
        CausalLink("dump-blocks", "dump-late", "; ", same_evidence("root_pid", "pid")),
    ),
)
