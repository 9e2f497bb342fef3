"""Lock waits of one tick: root blockers, how many sessions wait for each, since when. Shared by all rules about locks.

Built once per tick, and only if sessions wait. Times are by the server's clock if available (pg_locks.waitstart, 14+),
else since the wait was first seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dba_console.core.clock import age_s
from dba_console.watch.samples.postgres import LockWaiter

if TYPE_CHECKING:
    from dba_console.watch.findings.rule import RuleContext

QUEUEING = frozenset(("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"))
"""Modes that conflict with row reads or writes (Table 13.2 of the documentation, "Explicit Locking"): a request for one
on a relation blocks all later requests, even before it is granted."""
GAP_US = 10_000_000
"""A wait first seen before a gap of this length may have ended and started again in it."""


def find_roots(blocked_by: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return for each waiter the sessions that block it, also behind others, and wait for none themselves.

    In a queue each waiter is blocked by all before it, so the blockers are many: sets are bits of an integer, and those
    at the front, who have the fewest, come first, which makes one pass enough.

    >>> find_roots({3: [2], 2: [1, 0]}), find_roots({1: [2], 2: [1]})
    ({3: [0, 1], 2: [0, 1]}, {1: [], 2: []})
    """
    roots = sorted({pid for blockers in blocked_by.values() for pid in blockers if pid not in blocked_by})
    found = dict.fromkeys(blocked_by, 0) | {root: 1 << place for place, root in enumerate(roots)}
    order = sorted(blocked_by.items(), key=lambda item: len(item[1]))
    used: set[int] = set()
    changed = True
    while changed:
        changed = False
        for pid, blockers in order:
            mask = found[pid]
            for blocker in blockers:
                mask |= found[blocker]
            if mask != found[pid]:
                found[pid] = mask
                changed = changed or pid in used
            used.update(blockers)
    lists = {mask: [root for root in roots if mask & found[root]] for mask in set(found.values())}
    return {pid: lists[found[pid]] for pid in blocked_by}


@dataclass(frozen=True, slots=True)
class LockBlocker:
    """A root blocker: it waits for nobody and blocks others. `pid` 0 is a prepared transaction."""

    pid: int
    behind: int
    """Sessions that wait for it, directly or indirectly."""
    blocks_s: float
    """How long it has been blocking others."""
    direct: tuple[LockWaiter, ...]
    """The direct waiters, the longest wait first."""


class LockWaits:
    """The lock waits of one tick."""

    def __init__(self, s: RuleContext, memo: dict[str, Any]) -> None:
        self._s = s
        self._memo = memo
        self.locks: list[LockWaiter] = s.facts.waiters or []
        self._now_us = s.facts.server_time_us("pg.locks")
        self._remember()

    def _remember(self) -> None:
        """Keep when each wait and blocker was first seen; drop those that are gone."""
        mono_us = self._s.mono_us
        known = self._memo.get("first", {}) if mono_us - self._memo.get("at_us", mono_us) <= GAP_US else {}
        keys: list[object] = [lock.pid for lock in self.locks]
        keys += [self._identity(pid) for pid in self._roots]
        self._first: dict[object, int] = {key: known.get(key, mono_us) for key in keys}
        self._memo["first"], self._memo["at_us"] = self._first, mono_us

    def _identity(self, pid: int) -> tuple[int, int | None]:
        """Return the key of a blocker, which differs in its next transaction."""
        row = self._s.facts.by_pid.get(pid)
        return pid, None if row is None else row.xact_start

    @cached_property
    def _roots(self) -> list[int]:
        """Pids that block and do not wait; those in a deadlock wait, and the server ends it within a second."""
        blocked = self._s.facts.blocked_by
        return sorted({pid for blockers in blocked.values() for pid in blockers if pid not in blocked})

    def waited_s(self, lock: LockWaiter) -> float:
        """Return how long it has been waiting, seconds."""
        seconds = age_s(self._now_us, lock.wait_start)
        return seconds if seconds is not None else (self._s.mono_us - self._first[lock.pid]) / 1e6

    def behind(self, pid: int) -> int:
        return self._s.facts.count_blocked({pid})

    @cached_property
    def blockers(self) -> list[LockBlocker]:
        """All root blockers, the one with most sessions behind it first."""
        found = [self._blocker(pid) for pid in self._roots]
        return sorted(found, key=lambda one: (-one.behind, -one.blocks_s, one.pid))

    def blocker(self, pid: int) -> LockBlocker | None:
        return next((one for one in self.blockers if one.pid == pid), None)

    def _blocker(self, pid: int) -> LockBlocker:
        direct = sorted((lock for lock in self.locks if pid in lock.blocked_by), key=self.waited_s, reverse=True)
        observed_s = (self._s.mono_us - self._first[self._identity(pid)]) / 1e6
        reported_s = self.waited_s(direct[0])
        # A wait may be older than the transaction that blocks it now: hot rows pass from one to the next.
        row = self._s.facts.by_pid.get(pid)
        opened_s = None if row is None else age_s(self._now_us, row.xact_start)
        if opened_s is not None:
            reported_s = min(reported_s, opened_s)
        return LockBlocker(pid, self.behind(pid), max(observed_s, reported_s), tuple(direct))

    @cached_property
    def _all_roots(self) -> dict[int, list[int]]:
        return find_roots(self._s.facts.blocked_by)

    def roots_of(self, pid: int) -> list[int]:
        """Return the root blockers of this wait, the oldest transaction first."""
        return sorted(self._all_roots.get(pid, ()), key=self._opened_us)

    def _opened_us(self, pid: int) -> tuple[int, int]:
        row = self._s.facts.by_pid.get(pid)
        # A prepared transaction is not among the sessions and is usually older than they are.
        return (0 if row is None else row.xact_start or 1 << 62), pid

    def strong_relation_locks(self) -> list[LockWaiter]:
        """Return the waits for relation locks that all later requests queue behind."""
        return [lock for lock in self.locks if lock.locktype == "relation" and lock.mode in QUEUEING]


def current_waits(s: RuleContext) -> LockWaits | None:
    """Return the waits of this tick; None if no session waits, or the blockers are not known.

    The number of waiting clients is known from the sessions; locks are evaluated only if there are any.
    """
    memo = s.memo("lock-waits")
    if not s.point.get("connections.waiting", 1.0):
        memo.clear()
        return None
    if memo.get("tick") != s.mono_us:
        memo["tick"] = s.mono_us
        memo["waits"] = LockWaits(s, memo) if s.facts.waiters else None
    waits: LockWaits | None = memo["waits"]
    return waits
