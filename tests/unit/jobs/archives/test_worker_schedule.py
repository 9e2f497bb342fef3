"""What is left is played forward as pg_restore works it off; the longest chain of needs is found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dba_console.jobs.archives.critical_path import Task, critical_objects, critical_path, longest_chain, makespan
from tests.unit.jobs.archives.made_archives import MB, ObjectCosts, SimulatedRestore, plan_of_sizes


def task(dump_id: int, seconds: float, *needs: int, table: int | None = None, shares: bool = True) -> Task:
    return Task(dump_id, seconds, seconds, tuple(needs), table, shares)


def test_one_worker_needs_the_sum_and_a_chain_cannot_be_shared() -> None:
    chain = [task(1, 5), task(2, 3, 1), task(3, 1, 2)]
    assert makespan(chain, 1) == 9
    assert makespan(chain, 8) == 9
    assert makespan([*chain, task(4, 9)], 2) == 9


def test_keys_of_one_table_wait_for_each_other() -> None:
    keys = [task(1, 4, table=7, shares=False), task(2, 4, table=7, shares=False)]
    assert makespan(keys, 2) == 8
    assert makespan([task(1, 4, table=7), task(2, 4, table=7)], 2) == 4


def test_two_keys_that_refer_to_one_table_are_never_checked_at_the_same_time() -> None:
    keys = [replace(task(n, 4, table=n, shares=False), others=(7,)) for n in (1, 2)]
    assert makespan(keys, 2) == 8


def test_an_excluded_dependency_counts_as_done() -> None:
    assert makespan([task(1, 4, 99)], 2) == 4


@given(
    seconds=st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=30),
    jobs=st.integers(min_value=2, max_value=5),
    reach=st.integers(min_value=1, max_value=7),
)
def test_no_schedule_is_shorter_than_its_longest_chain_or_its_share_of_the_sum(
    seconds: list[float], jobs: int, reach: int
) -> None:
    tasks = [task(n, long, *([n - reach] if n >= reach else [])) for n, long in enumerate(seconds)]
    chain = sum(seconds[dump_id] for dump_id in longest_chain(tasks))
    took = makespan(tasks, jobs)
    assert took >= max(chain, sum(seconds) / jobs) - 1e-6
    assert took <= sum(seconds) + 1e-6


def test_circular_dependencies_do_not_hang() -> None:
    circle = [task(1, 1, 2), task(2, 1, 1)]
    assert longest_chain(circle)
    assert makespan(circle, 2) == 0


def test_the_largest_table_its_key_and_its_indexes_are_the_critical_path() -> None:
    chain = [(one.desc, one.tag) for one in critical_path(plan_of_sizes([10 * MB, 900 * MB, 10 * MB]))]
    assert chain[:2] == [("TABLE DATA", "t1"), ("CONSTRAINT", "t1 pk1")]
    assert chain[2][0] == "INDEX"
    assert chain[3][0] == "FK CONSTRAINT"


def test_after_a_run_the_critical_path_has_its_measured_times() -> None:
    run = SimulatedRestore(plan_of_sizes([500 * MB, 10 * MB]), 2, costs=ObjectCosts(noise=0.0)).run()
    links = critical_objects(run.progress)
    assert [link.entry.tag for link in links][:2] == ["t0", "t0 pk0"]
    assert all(link.measured for link in links)
    assert sum(link.seconds or 0.0 for link in links) <= run.seconds + 0.1


def test_fifty_thousand_objects_have_a_critical_path_too() -> None:
    assert critical_path(plan_of_sizes([MB] * 10_000 + [9 * MB]))[0].tag == "t10000"


def test_without_sizes_there_is_no_critical_path() -> None:
    assert critical_path(plan_of_sizes([0, 0])) == ()
