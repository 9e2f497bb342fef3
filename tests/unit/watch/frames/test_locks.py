"""Trees of waits."""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.locks.panel import DEEPEST, LockNode, LocksPanel, derive_locks
from dba_console.watch.samples import postgres
from tests.build import NOW_US, part, picture, sample, series
from tests.readings import activity, sessions


def waits(*pairs: tuple[int, list[int]], held: list[postgres.HeldLock] | None = None) -> LocksPanel:
    """Trees of (waiter, its blockers); each has waited for as many seconds as its pid says."""
    waiters = [
        postgres.LockWaiter(pid, blockers, "relation", "ShareLock", "public.orders", NOW_US - pid * 1_000_000)
        for pid, blockers in pairs
    ]
    pids = {pid for pid, _ in pairs} | {blocker for _, blockers in pairs for blocker in blockers}
    rows = [activity(pid, "active", wait_event_type="Lock") for pid in sorted(pids) if pid]
    latest = series({"pg.activity": [sessions(*rows)], "pg.locks": [postgres.Locks(waiters, held or [])]})
    return derive_locks(PictureFacts(latest, ChartHistory()))


def drawn(node: LockNode) -> dict[int, object]:
    return {node.pid: [drawn(waiter) for waiter in node.waiters]}


def test_waiters_are_listed_under_their_root_blocker() -> None:
    panel = waits((2, [1]), (3, [2]), (4, [2]))
    assert [drawn(tree) for tree in panel.trees] == [{1: [{2: [{4: []}, {3: []}]}]}]
    assert (panel.waiting, panel.longest_wait_s, panel.trees[0].behind) == (3, 4.0, 3)


def test_a_waiter_with_several_blockers_is_listed_once_and_names_the_others() -> None:
    panel = waits((3, [2, 1]), (2, [1]))
    root = panel.trees[0]
    assert (root.pid, root.behind) == (1, 2)
    third = next(node for node in root.waiters if node.pid == 3)
    assert third.also_blocked_by == [2]


def test_two_roots_are_two_trees_the_one_with_more_waiters_first() -> None:
    panel = waits((10, [2]), (11, [1]), (12, [1]))
    assert [(tree.pid, tree.behind) for tree in panel.trees] == [(1, 2), (2, 1)]


def test_a_cycle_is_opened_at_the_longest_waiter() -> None:
    panel = waits((1, [3]), (2, [1]), (3, [2]))
    assert [drawn(tree) for tree in panel.trees] == [{3: [{1: [{2: []}]}]}]
    assert panel.trees[0].also_blocked_by == [2]


def test_a_prepared_transaction_is_a_root_without_a_session() -> None:
    panel = waits((5, [0]))
    assert (panel.trees[0].pid, panel.trees[0].state, panel.trees[0].behind) == (0, "prepared transaction", 1)


def test_a_root_shows_what_it_holds() -> None:
    panel = waits((2, [1]), held=[postgres.HeldLock(1, "AccessExclusiveLock", "public.orders", "relation")])
    assert (panel.trees[0].mode, panel.trees[0].relation) == ("AccessExclusiveLock", "public.orders")


def test_a_chain_too_deep_to_draw_loses_no_session() -> None:
    panel = waits(*[(pid, [pid - 1]) for pid in range(2, 502)])
    depth, nodes = 0, panel.trees
    while nodes:
        depth, nodes = depth + 1, [waiter for node in nodes for waiter in node.waiters]
    assert (panel.trees[0].behind, depth) == (500, DEEPEST)


def test_without_waiters_the_list_is_empty_and_there_is_no_longest_wait() -> None:
    panel = waits()
    assert (panel.status, panel.waiting, panel.longest_wait_s, panel.trees) == ("ok", 0, None, [])


def test_waits_ended_since_the_read_are_not_shown() -> None:
    locks = postgres.Locks([postgres.LockWaiter(2, [1], "relation", "ShareLock", None, None)], [])
    latest = picture(
        sample(part("pg.locks", locks, at_s=1), at_s=1),
        sample(part("pg.activity", sessions(activity(1), activity(2)), at_s=2), at_s=2),
    )
    assert derive_locks(PictureFacts(latest, ChartHistory())).waiting == 0


def test_unread_locks_do_not_mean_no_waiters() -> None:
    assert derive_locks(PictureFacts(picture(), ChartHistory())).waiting is None


def test_a_wait_without_a_start_from_the_server_has_no_duration() -> None:
    locks = postgres.Locks([postgres.LockWaiter(2, [1], "relation", "ShareLock", None, None)], [])
    latest = series({"pg.activity": [sessions(activity(1))], "pg.locks": [locks]})
    panel = derive_locks(PictureFacts(latest, ChartHistory()))
    assert (panel.waiting, panel.longest_wait_s) == (1, None)


def test_waits_are_measured_by_the_server_clock() -> None:
    """The host's clock is an hour ahead."""
    waiter = postgres.LockWaiter(2, [1], "relation", "ShareLock", None, NOW_US - 7_000_000)
    latest = picture(
        sample(
            part("pg.activity", sessions(activity(1), activity(2))),
            part("pg.locks", postgres.Locks([waiter], [])),
            wall_us=NOW_US + 3_600_000_000,
        )
    )
    assert derive_locks(PictureFacts(latest, ChartHistory())).longest_wait_s == 7.0
