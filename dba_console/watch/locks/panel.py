"""What is shown of locks: lock wait trees, from the root blockers down, and who blocked whom in the last minutes.

Ages use the server's clock, never the host's: the two may differ.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.core.clock import age_s, rfc3339
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.locks.episodes import SPAN_US
from dba_console.watch.locks.readings import BlockedSession, LockEpisode, LockEpisodes
from dba_console.watch.panel import Charted, Panel, PanelFrame, Points
from dba_console.watch.samples import postgres


class LockNode(Struct, kw_only=True):
    """A backend in a lock wait tree. `pid` 0 is a prepared transaction, which no session owns."""

    pid: int
    backend_start: str | None = None
    user: str | None = None
    database: str | None = None
    application: str | None = None
    state: str | None = None
    relation: str | None = None
    mode: str | None = None
    """The mode it waits for, or, for a root, the mode it holds."""
    wait_s: float | None = None
    xact_s: float | None = None
    query: str | None = None
    query_bytes: int | None = None
    """Length of the whole query if `query` is cut."""
    waiters: list[LockNode] = []
    behind: int = 0
    """Sessions below it in the tree, all levels."""
    also_blocked_by: list[int] = []
    """Further blockers of a waiter, besides the one it is shown under."""


class BlockedRow(Struct, kw_only=True):
    """A session that waited for a root blocker, also behind others."""

    pid: int
    backend_start: str | None = None
    user: str | None = None
    application: str | None = None
    mode: str | None = None
    relation: str | None = None
    waited_s: float = 0.0
    since: str | None = None
    """RFC 3339."""
    until: str | None = None
    """RFC 3339: when it was last seen waiting; null while it still waits."""


class EpisodeRow(Struct, kw_only=True):
    """A root blocker of the last minutes: a session that blocked others and waited for none, or a prepared transaction
    (`pid` 0)."""

    pid: int
    backend_start: str | None = None
    user: str | None = None
    database: str | None = None
    application: str | None = None
    state: str | None = None
    """In which it blocked others the longest, with its statement then."""
    query: str | None = None
    waited_s: float = 0.0
    """Sum over the sessions that waited for it: at most a tick too short for each wait."""
    since: str | None = None
    """RFC 3339: when the first of them was seen waiting."""
    until: str | None = None
    """RFC 3339: when the last one was; null while it still blocks."""
    waiters: list[BlockedRow] = []
    """Those that waited longest."""
    other_waiters: int = 0
    other_waited_s: float = 0.0


class LocksPanel(PanelFrame, kw_only=True):
    waiting: Annotated[int | None, Charted("waiting for locks", "pg.activity")] = None
    longest_wait_s: float | None = None
    trees: list[LockNode] = []
    episodes: list[EpisodeRow] = []
    """Who blocked whom within the last ten minutes, as far as locks were read."""
    episodes_since: str | None = None
    """RFC 3339: from when on that is known; null if it is not recorded."""
    episodes_gap_s: float | None = None
    """Time of these minutes in which locks were not read; nothing of it is in `waited_s`."""
    other_episodes: int | None = None
    """Root blockers that are not listed, because less time was waited for each, and the time waited for them."""
    other_waited_s: float | None = None


# Lock wait trees, from the root blockers down. Each waiter is in the trees once, under one of its blockers, so the
# numbers below a root add up; its other blockers are listed on it. A cycle (a deadlock not yet detected) is opened at
# its longest waiter.

DEEPEST = 40
"""Maximum levels of a tree; deeper waiters are shown at this level, since a chain of a thousand cannot be drawn."""
PREPARED = 0
"""pg_blocking_pids() returns 0 for a prepared transaction."""


def derive_locks(facts: PictureFacts) -> LocksPanel:
    """Return the locks panel; an empty list without waits, None if unknown."""
    panel = fill_status(LocksPanel(), facts.picture, "pg.locks")
    _add_episodes(panel, facts.picture)
    waiters = facts.waiters
    if waiters is None:
        return panel
    if not waiters and facts.sessions is not None:
        # That no session waits may be known from the sessions alone: then those were read.
        fill_status(panel, facts.picture, "pg.activity")
    panel.waiting = len(waiters)
    nodes = _nodes(waiters, facts)
    waits = [node.wait_s for node in nodes.values() if node.wait_s is not None]
    panel.longest_wait_s = max(waits, default=None)
    roots = _build_trees(nodes, {waiter.pid: waiter.blocked_by for waiter in waiters})
    panel.trees = sorted((nodes[pid] for pid in roots), key=lambda node: (-node.behind, node.pid))
    return panel


def _nodes(waiters: list[postgres.LockWaiter], facts: PictureFacts) -> dict[int, LockNode]:
    """Return a node for each waiter and each blocker."""
    now_us = facts.server_time_us("pg.locks")
    locks = facts.picture.now("pg.locks", postgres.Locks)
    held = {} if locks is None else {lock.pid: lock for lock in locks.held}
    waiting = {waiter.pid: waiter for waiter in waiters}
    blockers = {pid for waiter in waiters for pid in waiter.blocked_by}
    nodes = {}
    for pid in [*waiting, *sorted(blockers - waiting.keys())]:
        node = nodes[pid] = _node(pid, facts)
        if pid in waiting:
            waiter = waiting[pid]
            node.mode, node.relation = waiter.mode, waiter.relation or waiter.locktype
            node.wait_s = age_s(now_us, waiter.wait_start)
        elif pid in held:
            node.mode, node.relation = held[pid].mode, held[pid].relation or held[pid].locktype
    return nodes


def _node(pid: int, facts: PictureFacts) -> LockNode:
    if pid == PREPARED:
        return LockNode(pid=pid, state="prepared transaction")
    row = facts.by_pid.get(pid)
    if row is None:
        return LockNode(pid=pid)
    return LockNode(
        pid=pid,
        backend_start=rfc3339(row.backend_start),
        user=row.user,
        database=row.database,
        application=row.application,
        state=row.state,
        xact_s=age_s(facts.server_time_us("pg.activity"), row.xact_start),
        query=row.query,
        query_bytes=row.query_bytes,
    )


def _build_trees(nodes: dict[int, LockNode], blocked_by: dict[int, list[int]]) -> list[int]:
    """Put every waiter under one blocker and count the sessions below; return the roots."""
    parents = {pid: _parent(pid, blockers, blocked_by) for pid, blockers in blocked_by.items()}
    children: dict[int | None, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    roots = [pid for pid in nodes if parents.get(pid) is None]
    order = _link_waiters(roots, nodes, children)
    left = nodes.keys() - order
    while left:
        # Only cycles remain: all sessions in them wait.
        first = min(left, key=lambda pid: (-(nodes[pid].wait_s or 0.0), pid))
        children[parents[first]].remove(first)
        parents[first] = None
        roots.append(first)
        order.update(_link_waiters([first], nodes, children))
        left = nodes.keys() - order
    for pid, blockers in blocked_by.items():
        nodes[pid].also_blocked_by = sorted({blocker for blocker in blockers if blocker != parents[pid]})
    for root in roots:
        _count_behind(nodes[root])
    return roots


def _parent(pid: int, blockers: list[int], blocked_by: dict[int, list[int]]) -> int | None:
    """Return the blocker to show it under: one that does not wait, since ending that one helps; else the first."""
    others = [blocker for blocker in blockers if blocker != pid]
    free = [blocker for blocker in others if blocker not in blocked_by]
    return next(iter(free or others), None)


def _link_waiters(roots: list[int], nodes: dict[int, LockNode], children: dict[int | None, list[int]]) -> set[int]:
    """Link nodes from the roots down, without recursion; return the pids reached."""
    seen = set(roots)
    todo = [(pid, nodes[pid], 1) for pid in roots]
    while todo:
        pid, shown_under, depth = todo.pop()
        for child in sorted(children.get(pid, ()), key=lambda each: (-(nodes[each].wait_s or 0.0), each)):
            if child in seen:
                continue
            seen.add(child)
            shown_under.waiters.append(nodes[child])
            deeper = depth + 1 < DEEPEST
            todo.append((child, nodes[child] if deeper else shown_under, depth + 1 if deeper else depth))
    return seen


def _count_behind(node: LockNode) -> int:
    node.behind = sum(1 + _count_behind(waiter) for waiter in node.waiters)
    return node.behind


# Who blocked whom. The agent computes it (`episodes.py`); times become wall times by the newest reading of both clocks.


def _add_episodes(panel: LocksPanel, picture: Picture) -> None:
    reading = picture.current.get("locks.episodes")
    found = picture.now("locks.episodes", LockEpisodes)
    if reading is None or found is None:
        return
    offset_us, now_us = picture.wall_us - picture.mono_us, reading.part.at_us
    oldest_us = picture.mono_us - SPAN_US
    panel.episodes_since = rfc3339(max(found.since_us, oldest_us) + offset_us)
    panel.episodes_gap_s = sum(max(0, end - max(begin, oldest_us)) for begin, end in found.gaps) / 1e6
    panel.episodes = [episode_row(row, now_us, offset_us) for row in found.rows if row.last_us >= oldest_us]
    panel.other_episodes, panel.other_waited_s = found.omitted, found.omitted_us / 1e6


def episode_row(row: LockEpisode, now_us: int, offset_us: int) -> EpisodeRow:
    """Return the row with wall times: `offset_us` is added. `now_us`: the reading; what has its time still lasts."""
    return EpisodeRow(
        pid=row.pid,
        backend_start=rfc3339(row.backend_start),
        user=row.user,
        database=row.database,
        application=row.application,
        state="prepared transaction" if row.pid == PREPARED else row.state,
        query=row.query,
        waited_s=row.waited_us / 1e6,
        since=rfc3339(row.first_us + offset_us),
        until=None if row.last_us == now_us else rfc3339(row.last_us + offset_us),
        waiters=[_blocked_row(one, now_us, offset_us) for one in row.waiters],
        other_waiters=row.omitted_waiters,
        other_waited_s=row.omitted_us / 1e6,
    )


def _blocked_row(row: BlockedSession, now_us: int, offset_us: int) -> BlockedRow:
    return BlockedRow(
        pid=row.pid,
        backend_start=rfc3339(row.backend_start),
        user=row.user,
        application=row.application,
        mode=row.mode,
        relation=row.relation or row.locktype,
        waited_s=row.waited_us / 1e6,
        since=rfc3339(row.first_us + offset_us),
        until=None if row.last_us == now_us else rfc3339(row.last_us + offset_us),
    )


def points(facts: PictureFacts) -> Points:
    """Return the number of sessions that wait, which the sessions show; unknown if a state is hidden."""
    if facts.is_blind or not facts.was_read_now("pg.activity"):
        return {}
    return {"locks.waiting": facts.waiting_clients}


PANEL = Panel(name="locks", fields=LocksPanel, derive=derive_locks, points=points)
