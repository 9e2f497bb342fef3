"""Who blocked whom, afterwards: the time that each session waited for each root blocker, from readings of lock waits.

Time counts between two readings: all of it if a session waits in both, and since pg_locks.waitstart (14+) if its wait
began in between. So each wait is at most a tick too short; a clock that is set makes it wrong by at most a tick. Time
in which locks were not read counts for nobody and is listed. A session that waits for several root blockers counts for
each, at most for the eight with the oldest transactions; one in a deadlock has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dba_console.watch.lock_waits import find_roots
from dba_console.watch.locks.readings import BlockedSession, LockEpisode, LockEpisodes
from dba_console.watch.samples.postgres import Activity, Locks, LockWaiter, Sessions

SPAN_US = 600_000_000
"""What has waited within the last ten minutes is kept, as in the charts."""
MAX_ROOTS = 20
MAX_WAITERS = 20
"""Listed for each root blocker."""
MAX_BLOCKERS = 8
"""Root blockers of one session that count."""
MAX_KEPT = 100
"""Root blockers kept, and sessions that waited for each. Of more the least are forgotten and only counted, but none
that blocks or waits now."""
MAX_STATES = 8
MAX_QUERY = 500
"""Characters kept of a statement."""
GAP_US = 5_000_000
GAP_TICKS = 3
"""Readings further apart than this many ticks, at least five seconds, have a gap between them."""

Identity = tuple[int, int | None]
"""Pid and start of a backend."""


@dataclass(slots=True)
class _Omitted:
    """What is only counted."""

    count: int = 0
    waited_us: int = 0
    last_us: int = 0

    def add(self, waited_us: int, last_us: int) -> None:
        self.count += 1
        self.waited_us += waited_us
        self.last_us = last_us


@dataclass(slots=True)
class _Blocked:
    lock: LockWaiter
    first_us: int
    row: Activity | None = None
    waited_us: int = 0
    last_us: int = 0


@dataclass(slots=True)
class _Root:
    row: Activity | None = None
    waiters: dict[Identity, _Blocked] = field(default_factory=dict)
    states: dict[tuple[str | None, str], int] = field(default_factory=dict)
    """Time in each state with each statement."""
    first_us: int = 0
    last_us: int = 0
    forgotten: _Omitted = field(default_factory=_Omitted)

    @property
    def waited_us(self) -> int:
        return self.forgotten.waited_us + sum(blocked.waited_us for blocked in self.waiters.values())

    def add_state(self, row: Activity, elapsed_us: int) -> None:
        self.row, state = row, (row.state, row.query[:MAX_QUERY])
        if state not in self.states and len(self.states) >= MAX_STATES:
            del self.states[min(self.states, key=self.states.__getitem__)]
        self.states[state] = self.states.get(state, 0) + elapsed_us


class _Sessions:
    """The sessions of a reading of locks, and what the sessions read last show of them."""

    def __init__(self, locks: Locks, sessions: Sessions | None) -> None:
        self._rows = {} if sessions is None else {row.pid: row for row in sessions.rows}
        self._starts = {one.pid: one.backend_start for one in locks.sessions}
        self._oldest: dict[tuple[int, ...], list[Identity]] = {}

    def identity(self, pid: int) -> Identity:
        row = self._rows.get(pid)
        return pid, self._starts.get(pid, None if row is None else row.backend_start)

    def oldest(self, pids: Sequence[int]) -> list[Identity]:
        """Return at most MAX_BLOCKERS of them, those with the oldest transactions; prepared ones are usually older."""
        key = tuple(pids)
        if key not in self._oldest:
            found = [self.identity(pid) for pid in pids]
            self._oldest[key] = (
                found if len(found) <= MAX_BLOCKERS else sorted(found, key=self._opened_us)[:MAX_BLOCKERS]
            )
        return self._oldest[key]

    def _opened_us(self, who: Identity) -> int:
        row = self.row(who)
        return (0 if who[0] == 0 else 1 << 62) if row is None else row.xact_start or 1 << 62

    def row(self, who: Identity) -> Activity | None:
        """Return the session, None if it is not known, or another one has its pid."""
        row = self._rows.get(who[0])
        return None if row is None or row.backend_start != who[1] else row


class LockEpisodeTracker:
    """Follows the readings of one server, in order."""

    def __init__(self, tick_us: int, span_us: int | None = SPAN_US) -> None:
        """`tick_us`: the interval of the readings. `span_us` None: nothing becomes too old."""
        self._gap_us = max(GAP_US, GAP_TICKS * tick_us)
        self._span_us = span_us
        self._since_us: int | None = None
        self._at_us, self._boot = 0, ""
        self._waiting: dict[Identity, int | None] = {}
        """Sessions that wait in the last reading, and since when by the server's clock."""
        self._roots: dict[Identity, _Root] = {}
        self._gaps: list[tuple[int, int]] = []
        self._forgotten = _Omitted()

    def add(self, locks: Locks, sessions: Sessions | None, at_us: int, server_us: int | None, boot: str = "") -> bool:
        """Add a reading; return whether it changed something.

        `at_us`: its monotonic time, which compares only within one `boot`; `server_us`: the server's clock then.
        """
        elapsed_us, changed = 0, bool(locks.waiters or self._waiting)
        if self._since_us is None:
            self._since_us, changed = at_us, True
        elif boot == self._boot and 0 <= at_us - self._at_us <= self._gap_us:
            elapsed_us = at_us - self._at_us
        else:
            self._gaps.append((min(self._at_us, at_us), at_us))
            changed = True
        before, self._waiting = self._waiting, {}
        self._at_us, self._boot = at_us, boot
        if locks.waiters:
            self._add_waits(_Sessions(locks, sessions), locks.waiters, before, elapsed_us, server_us)
        if self._span_us is not None and self._forget_old(at_us - self._span_us):
            changed = True
        return changed

    def reading(self) -> LockEpisodes:
        """Return who blocked whom, with what is left out."""
        roots = sorted(self._roots.items(), key=lambda item: -item[1].waited_us)
        rest = roots[MAX_ROOTS:]
        return LockEpisodes(
            since_us=self._at_us if self._since_us is None else self._since_us,
            rows=[_episode(who, root) for who, root in roots[:MAX_ROOTS]],
            omitted=len(rest) + self._forgotten.count,
            omitted_us=sum(root.waited_us for _, root in rest) + self._forgotten.waited_us,
            gaps=list(self._gaps),
        )

    def _add_waits(
        self,
        sessions: _Sessions,
        waiters: Sequence[LockWaiter],
        before: Mapping[Identity, int | None],
        elapsed_us: int,
        server_us: int | None,
    ) -> None:
        roots = find_roots({lock.pid: lock.blocked_by for lock in waiters})
        blocking: dict[Identity, _Root] = {}
        for lock in waiters:
            who = sessions.identity(lock.pid)
            self._waiting[who] = lock.wait_start
            if who in before and before[who] == lock.wait_start:
                waited_us = elapsed_us
            elif lock.wait_start is not None and server_us is not None:
                waited_us = min(elapsed_us, max(0, server_us - lock.wait_start))
            else:
                waited_us = 0
            for blocker in sessions.oldest(roots[lock.pid]):
                root = blocking[blocker] = self._roots.setdefault(blocker, _Root(first_us=self._at_us - waited_us))
                blocked = root.waiters.get(who)
                if blocked is None:
                    blocked = root.waiters[who] = _Blocked(lock, self._at_us - waited_us)
                    root.first_us = min(root.first_us, blocked.first_us)
                blocked.lock, blocked.last_us = lock, self._at_us
                blocked.row = sessions.row(who) or blocked.row
                blocked.waited_us += waited_us
        for who, root in blocking.items():
            root.last_us = self._at_us
            if (row := sessions.row(who)) is not None:
                root.add_state(row, elapsed_us)
            _forget_least(root.waiters, root.forgotten, self._at_us)
        _forget_least(self._roots, self._forgotten, self._at_us)

    def _forget_old(self, oldest_us: int) -> bool:
        """Return whether a root blocker became too old."""
        old = [who for who, root in self._roots.items() if root.last_us < oldest_us]
        for who in old:
            del self._roots[who]
        self._gaps = [gap for gap in self._gaps if gap[1] >= oldest_us]
        if self._forgotten.last_us < oldest_us:
            self._forgotten = _Omitted()
        return bool(old)


def _forget_least(kept: dict[Identity, _Root] | dict[Identity, _Blocked], forgotten: _Omitted, now_us: int) -> None:
    """Forget those with the least time of more than MAX_KEPT, but none of the reading of now."""
    if len(kept) <= MAX_KEPT:
        return
    over = sorted((who for who, one in kept.items() if one.last_us < now_us), key=lambda who: kept[who].waited_us)
    for who in over[: len(kept) - MAX_KEPT]:
        forgotten.add(kept.pop(who).waited_us, now_us)


def _episode(who: Identity, root: _Root) -> LockEpisode:
    waiters = sorted(root.waiters.items(), key=lambda item: -item[1].waited_us)
    state, query = max(root.states, key=root.states.__getitem__, default=(None, ""))
    row, rest = root.row, waiters[MAX_WAITERS:]
    return LockEpisode(
        pid=who[0],
        backend_start=who[1],
        database=None if row is None else row.database,
        user=None if row is None else row.user,
        application="" if row is None else row.application,
        state=state,
        query=query,
        waited_us=root.waited_us,
        first_us=root.first_us,
        last_us=root.last_us,
        waiters=[_blocked_session(one, blocked) for one, blocked in waiters[:MAX_WAITERS]],
        omitted_waiters=len(rest) + root.forgotten.count,
        omitted_us=sum(blocked.waited_us for _, blocked in rest) + root.forgotten.waited_us,
    )


def _blocked_session(who: Identity, blocked: _Blocked) -> BlockedSession:
    row, lock = blocked.row, blocked.lock
    return BlockedSession(
        pid=who[0],
        backend_start=who[1],
        user=None if row is None else row.user,
        application="" if row is None else row.application,
        mode=lock.mode,
        relation=lock.relation,
        locktype=lock.locktype,
        waited_us=blocked.waited_us,
        first_us=blocked.first_us,
        last_us=blocked.last_us,
    )
