"""Of many thousand objects those that matter are reported, without iterating over all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
from dba_console.jobs.archives.progress_forecast import ForecastState, forecast
from dba_console.jobs.following.tracked_job import MAX_WAITING_ROWS, LargestWaiting, objects_now
from dba_console.watch.samples.jobs import OBJECTS_LISTED
from tests.build import NOW_US
from tests.unit.jobs.following.plans import restore_plan

SECOND = 1_000_000


def test_running_objects_come_before_failed_waiting_and_done_ones() -> None:
    plan = restore_plan(50)
    progress = ObjectProgress(plan, "pg_restore", 4)
    progress.observe_finished(21, NOW_US)
    progress.observe_running(31, NOW_US - 9 * SECOND, 10.0, 100.0, "bytes", 77, since_us=NOW_US - 9 * SECOND)
    progress.observe_running(41, NOW_US, since_us=NOW_US)
    progress.observe_finished(41, NOW_US, failed="could not extend file")
    reported = objects_now(progress, LargestWaiting(plan), [21], NOW_US)
    assert [one.state for one in reported] == ["running", "failed", *["waiting"] * MAX_WAITING_ROWS, "done"]
    first, failed, largest = reported[:3]
    assert (first.name, first.what, first.pid, first.pct, first.elapsed_s) == ("public.t3", "TABLE DATA", 77, 10.0, 9.0)
    assert (failed.name, failed.note) == ("public.t4", "could not extend file")
    assert largest.name == "public.t1", "the largest waits first"


def test_no_more_objects_are_reported_than_fit_into_a_sample() -> None:
    plan = restore_plan(400)
    progress = ObjectProgress(plan, "pg_restore", 400)
    for n in range(1, 301):
        progress.observe_running(10 * n + 1, NOW_US)
    assert len(objects_now(progress, LargestWaiting(plan), [], NOW_US)) == OBJECTS_LISTED
    assert progress.counts()[0] == 300


class CountedItems(Mapping[int, DumpObject]):
    """A ledger's items, and how often one was asked for."""

    def __init__(self, items: Mapping[int, DumpObject]) -> None:
        self._items = items
        self.asked = 0

    def __getitem__(self, dump_id: int) -> DumpObject:
        self.asked += 1
        return self._items[dump_id]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a pass over all objects")


def test_no_observation_visits_all_objects() -> None:
    plan = restore_plan(10_000)
    progress = ObjectProgress(plan, "pg_restore", 2)
    waiting, asked = LargestWaiting(plan), []
    for n in range(1, 2001):
        progress.observe_finished(10 * n + 1, NOW_US)
        if n % 10 == 0:
            counted = CountedItems(progress.objects())
            assert len(waiting.largest(counted)) == MAX_WAITING_ROWS
            asked.append(counted.asked)
    assert sum(asked) <= 200 * MAX_WAITING_ROWS + 10_000, "each is passed over once in all"


def test_the_list_of_done_objects_is_limited_and_progress_is_never_complete() -> None:
    plan = restore_plan(3)
    progress = ObjectProgress(plan, "pg_restore", 1)
    progress.observe_running(11, NOW_US, 100.0, 100.0, "bytes", since_us=NOW_US - SECOND)
    (running, *_) = objects_now(progress, None, deque(), NOW_US)
    assert (running.pct, running.grade) == (99.0, "estimated")
    assert (forecast(progress, NOW_US, state=ForecastState()).pct or 0) < 100
