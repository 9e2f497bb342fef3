"""What the agents of one server keep is one history: all of it, nothing of another server, and no run twice."""

from __future__ import annotations

from msgspec import structs

from dba_console.jobs.history.kept_history import merge_runs
from dba_console.jobs.history.run_statistics import MAX_RUNS, JobRun
from tests.jobs import DAY_US, NOW_US

NIGHTS = [JobRun(NOW_US - day * DAY_US, 3600.0, True, exit=0) for day in range(9, 0, -1)]


def later(run: JobRun, seconds: float) -> JobRun:
    """The same run as another agent saw it."""
    return structs.replace(run, started_us=run.started_us + int(seconds * 1e6))


def test_a_run_watched_by_two_agents_is_one_with_the_details_of_both() -> None:
    seen = [structs.replace(later(run, 2.0), exit=None, seconds=3599.0) for run in NIGHTS[2:]]
    assert merge_runs(NIGHTS[:6], seen) == merge_runs(seen, NIGHTS[:6])
    runs = merge_runs(NIGHTS[:6], seen)
    assert [run.exit for run in runs] == [0] * 6 + [None] * 3
    assert [run.unbroken for run in runs] == [False] + [True] * 8
    assert merge_runs(runs, runs) == runs


def test_concurrent_runs_of_a_job_stay_two() -> None:
    both = [NIGHTS[0], later(NIGHTS[0], 1.0)]
    assert len(merge_runs(both, [later(run, 0.5) for run in both])) == 2
    assert len(merge_runs(both, [])) == 2


def test_runs_seen_by_one_agent_alone_are_not_merged_with_others() -> None:
    minutes = [JobRun(NOW_US + number * 60_000_000, 4.0, True) for number in range(10)]
    assert len(merge_runs(minutes[:5], minutes[5:])) == 10
    assert len(merge_runs(minutes[::2], minutes[1::2])) == 10


def test_a_merge_keeps_no_more_than_before_and_the_newest() -> None:
    runs = [JobRun(NOW_US + number * DAY_US, 3600.0, True) for number in range(MAX_RUNS + 10)]
    assert merge_runs(runs[:MAX_RUNS], runs[10:])[0].started_us == runs[10].started_us


def test_an_interval_to_a_run_unknown_to_the_agent_is_unknown() -> None:
    (_, second) = merge_runs(NIGHTS[:1], NIGHTS[4:5])
    assert not second.unbroken
