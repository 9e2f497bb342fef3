"""Who blocked whom, afterwards: what counts as waiting, for whom, and what is left out."""

from __future__ import annotations

import pytest

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.locks.episodes import MAX_BLOCKERS, MAX_KEPT, MAX_ROOTS, MAX_WAITERS, LockEpisodeTracker
from dba_console.watch.locks.panel import derive_locks
from dba_console.watch.locks.readings import LockEpisode, LockEpisodes
from dba_console.watch.samples.postgres import Activity, Locks, LockWaiter
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, sessions

S = 1_000_000
ROOT, OTHER, FIRST, SECOND = 1, 2, 11, 12


class Server:
    """A server read once a second, whose clock and that of the host may be set."""

    def __init__(self) -> None:
        self.tracker = LockEpisodeTracker(S)
        self.rows = {pid: activity(pid) for pid in (ROOT, OTHER, FIRST, SECOND)}
        self.waits: dict[int, LockWaiter] = {}
        self.mono_us = 100 * S
        self.clock_us = NOW_US
        self.boot = "b1"

    def wait(self, pid: int, *blockers: int, began_s: float | None = 0.0) -> None:
        """`pid` waits since `began_s` seconds ago; None: the server does not say since when."""
        start = None if began_s is None else self.clock_us - int(began_s * S)
        self.waits[pid] = LockWaiter(pid, list(blockers), "relation", "ShareLock", "public.orders", start)

    def read(self, count: int = 1, after_s: float = 1.0) -> bool:
        """Read it so often, each time `after_s` seconds later; return whether the last reading changed something."""
        changed = False
        for _ in range(count):
            self.mono_us += int(after_s * S)
            self.clock_us += int(after_s * S)
            locks = Locks(list(self.waits.values()), [])
            changed = self.tracker.add(locks, sessions(*self.rows.values()), self.mono_us, self.clock_us, self.boot)
        return changed

    @property
    def reading(self) -> LockEpisodes:
        return self.tracker.reading()

    @property
    def only(self) -> LockEpisode:
        (row,) = self.reading.rows
        return row

    def pairs(self) -> dict[tuple[int, int], float]:
        """Seconds by blocker and waiter."""
        return {(row.pid, one.pid): one.waited_us / S for row in self.reading.rows for one in row.waiters}


@pytest.fixture
def watched() -> Server:
    watched = Server()
    watched.read()
    return watched


def test_where_nobody_waited_there_is_no_episode(watched: Server) -> None:
    assert not watched.read(30)
    assert watched.reading == LockEpisodes(101 * S, [], 0, 0, [])


def test_waiting_counts_between_readings_and_from_the_start_that_the_server_reports(watched: Server) -> None:
    watched.wait(FIRST, ROOT, began_s=-0.7)  # 0.3 s before the next reading
    watched.read(4)
    watched.waits.clear()
    watched.read(60)
    assert watched.pairs() == {(ROOT, FIRST): pytest.approx(3.3)}
    assert (watched.only.first_us, watched.only.last_us) == (101.7 * S, 105 * S)


def test_before_14_a_wait_counts_from_the_reading_that_shows_it(watched: Server) -> None:
    watched.wait(FIRST, ROOT, began_s=None)
    watched.read(4)
    assert watched.pairs() == {(ROOT, FIRST): 3.0}


def test_sessions_behind_others_wait_for_the_root(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.wait(SECOND, FIRST)
    watched.read(3)
    assert watched.pairs() == {(ROOT, FIRST): 3.0, (ROOT, SECOND): 3.0}
    assert watched.only.waited_us == 6 * S


def test_a_session_that_waits_for_two_counts_for_each(watched: Server) -> None:
    watched.wait(FIRST, ROOT, OTHER)
    watched.read(2)
    assert watched.pairs() == {(ROOT, FIRST): 2.0, (OTHER, FIRST): 2.0}


def test_of_very_many_blockers_those_with_the_oldest_transactions_count(watched: Server) -> None:
    readers = range(1000, 1000 + MAX_BLOCKERS + 20)
    watched.rows |= {pid: activity(pid, xact_start=NOW_US - pid * S) for pid in readers}
    watched.wait(FIRST, *readers)
    watched.read()
    assert {row.pid for row in watched.reading.rows} == set(readers[-MAX_BLOCKERS:])


def test_in_a_deadlock_nobody_is_the_root(watched: Server) -> None:
    watched.wait(FIRST, SECOND)
    watched.wait(SECOND, FIRST)
    watched.read(2)
    assert watched.reading.rows == []


def test_the_next_backend_with_the_pid_of_the_root_is_another_one(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.rows[ROOT] = activity(ROOT, backend_start=watched.clock_us, application="another")
    watched.read(3)
    assert [(row.application, row.waited_us) for row in watched.reading.rows] == [
        ("another", 3 * S),
        ("orders-api", 2 * S),
    ]


def test_the_next_backend_with_the_pid_of_a_waiter_has_not_waited_before(watched: Server) -> None:
    watched.wait(FIRST, ROOT, began_s=None)
    watched.read(3)
    watched.rows[FIRST] = activity(FIRST, backend_start=watched.clock_us)
    watched.read(2)
    assert sorted(one.waited_us for one in watched.only.waiters) == [S, 2 * S]


def test_a_new_wait_of_a_session_counts_from_its_own_start(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.wait(FIRST, ROOT, began_s=-0.5)
    watched.read()
    assert watched.pairs() == {(ROOT, FIRST): 2.5}


def test_time_without_readings_counts_for_nobody_and_is_listed(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.read(after_s=40)
    watched.read(2)
    assert watched.pairs() == {(ROOT, FIRST): 4.0}
    assert watched.reading.gaps == [(103 * S, 143 * S)]


def test_another_run_of_the_agent_has_another_clock(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.boot = "b2"
    watched.read(2)
    assert watched.pairs() == {(ROOT, FIRST): 3.0}
    assert watched.reading.gaps == [(103 * S, 104 * S)]


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_clock_of_the_server_that_is_set_changes_no_duration(watched: Server, step_s: int) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.clock_us += step_s * S
    watched.read(2)
    watched.wait(SECOND, ROOT)
    watched.clock_us += step_s * S
    watched.read()
    pairs = watched.pairs()
    assert pairs[ROOT, FIRST] == 5.0
    assert 0.0 <= pairs[ROOT, SECOND] <= 1.0


def test_the_statement_is_that_of_the_state_in_which_it_blocked_longest(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    states = [("active", "update orders", 1), ("idle in transaction", "select 1", 5), ("active", "commit", 1)]
    for state, query, count in states:
        watched.rows[ROOT] = activity(ROOT, state, query=query)
        watched.read(count)
    assert (watched.only.state, watched.only.query) == ("idle in transaction", "select 1")


def test_after_ten_minutes_it_is_forgotten(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(2)
    watched.read(after_s=20)
    watched.waits.clear()
    watched.read(600)
    assert watched.only.pid == ROOT
    assert watched.read()
    watched.read(20)
    assert watched.reading.rows == [] and watched.reading.gaps == []


def test_of_many_the_longest_are_listed_and_the_rest_is_counted(watched: Server) -> None:
    roots = range(1000, 1000 + MAX_ROOTS + 5)
    for root in roots:
        watched.wait(root + 5000, root)
        watched.rows |= {pid: activity(pid) for pid in (root, root + 5000)}
    watched.read(2)
    reading = watched.reading
    assert (len(reading.rows), reading.omitted, reading.omitted_us) == (MAX_ROOTS, 5, 10 * S)


def test_of_many_waiters_the_longest_are_listed_and_the_rest_is_counted(watched: Server) -> None:
    for pid in range(1000, 1000 + MAX_WAITERS + 3):
        watched.wait(pid, ROOT)
        watched.rows[pid] = activity(pid)
    watched.read()
    row = watched.only
    assert (len(row.waiters), row.omitted_waiters, row.omitted_us) == (MAX_WAITERS, 3, 3 * S)


def test_what_is_kept_is_bounded_and_no_time_is_lost(watched: Server) -> None:
    def one_after_another(row: Activity, pid: int) -> None:
        watched.rows[row.pid] = row
        watched.waits.clear()
        watched.wait(pid, row.pid)
        watched.read()

    for number in range(MAX_KEPT + 40):
        one_after_another(activity(5000 + number), FIRST)
    reading = watched.reading
    assert len(reading.rows) + reading.omitted == MAX_KEPT + 40
    assert sum(row.waited_us for row in reading.rows) + reading.omitted_us == (MAX_KEPT + 40) * S
    watched.rows = {ROOT: activity(ROOT)} | {pid: activity(pid) for pid in range(10_000, 10_000 + MAX_KEPT + 40)}
    for pid in range(10_000, 10_000 + MAX_KEPT + 40):
        watched.waits = {}
        watched.wait(pid, ROOT)
        watched.read()
    row = watched.reading.rows[0]
    assert len(row.waiters) + row.omitted_waiters == MAX_KEPT + 40
    assert row.waited_us == (MAX_KEPT + 40) * S


def test_the_panel_shows_wall_times_that_a_set_clock_of_the_host_does_not_turn_around(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read(10)
    watched.waits.clear()
    watched.read()
    reading = watched.reading
    seen = picture(sample(part("locks.episodes", reading, at_s=112.0), at_s=150.0, wall_us=NOW_US - 3600 * S))
    panel = derive_locks(PictureFacts(seen, ChartHistory()))
    (row,) = panel.episodes
    assert (row.waited_s, row.since, row.until) == (10.0, "2026-11-20T13:56:40Z", "2026-11-20T13:56:50Z")


def test_an_episode_that_lasts_has_no_end(watched: Server) -> None:
    watched.wait(FIRST, ROOT)
    watched.read()
    seen = picture(sample(part("locks.episodes", watched.reading, at_s=102.0), at_s=102.0))
    panel = derive_locks(PictureFacts(seen, ChartHistory()))
    assert (panel.episodes[0].until, panel.episodes[0].waiters[0].until) == (None, None)


def test_an_old_recording_does_not_claim_that_nobody_waited() -> None:
    panel = derive_locks(PictureFacts(picture(sample()), ChartHistory()))
    assert (panel.episodes, panel.episodes_since, panel.other_episodes) == ([], None, None)
