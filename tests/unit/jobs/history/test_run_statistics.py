"""Typical values are based on successful runs, and the interval between runs on observed time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from dba_console.core.decoding import convert
from dba_console.jobs.archives.object_durations import RunPhase
from dba_console.jobs.history.run_statistics import (
    MAX_RUNS,
    JobRun,
    RunFacts,
    intervals_s,
    limit_phases,
    longest_typical_s,
    make_run,
    trim_runs,
    typical_runs,
    typical_s,
)

DAY_S = 86_400.0


def runs(*seconds: float) -> list[JobRun]:
    return [JobRun(int(day * DAY_S * 1e6), one, unbroken=day > 0) for day, one in enumerate(seconds)]


def test_two_runs_are_not_a_schedule() -> None:
    assert typical_s(runs(60.0, 61.0)) is None
    assert typical_s(runs(60.0, 61.0, 62.0)) == 61.0


def test_a_dump_cancelled_after_three_seconds_changes_nothing() -> None:
    assert typical_s(runs(3600.0, 3700.0, 3.0, 3650.0, 2.0)) == 3650.0


def test_a_run_that_hung_for_a_day_changes_little() -> None:
    assert typical_s(runs(3600.0, 3700.0, 90_000.0, 3650.0)) == 3675.0


def test_a_schema_dumped_every_hour_does_not_hide_the_nightly_dump() -> None:
    night = [*([2.0] * 23), 3600.0]
    assert typical_s(runs(*night)) == 2.0, "one night is no history"
    assert typical_s(runs(*night, *night)) is None, "two are two different jobs under one name"
    assert typical_s(runs(*night, *night, *night)) == 3600.0


def test_a_small_dump_that_once_hung_stays_small() -> None:
    assert typical_s(runs(20.0, 21.0, 900.0, 22.0)) == 21.5


def test_the_least_informative_runs_are_removed_first() -> None:
    kept = runs(*([2.0] * 40), *([3600.0] * 40))
    assert [run.seconds for run in trim_runs(kept)] == [2.0] * 20 + [3600.0] * 40
    long = runs(*([3600.0] * 80))
    assert trim_runs(long) == long[-MAX_RUNS:]


def test_an_interval_is_known_only_if_all_of_it_was_watched() -> None:
    known = runs(60.0, 60.0, 60.0, 60.0)
    assert intervals_s(known) == [DAY_S] * 3
    known[2] = JobRun(known[2].started_us, 60.0, unbroken=False)
    assert intervals_s(known) == [DAY_S] * 2


def test_a_cancelled_run_neither_halves_the_interval_nor_hides_a_gap() -> None:
    known = runs(60.0, 60.0, 1.0, 60.0)
    assert intervals_s(known) == [DAY_S, 2 * DAY_S]
    known[2] = JobRun(known[2].started_us, 1.0, unbroken=False)
    assert intervals_s(known) == [DAY_S]


def test_a_clock_set_back_between_two_runs_gives_no_interval() -> None:
    assert intervals_s([JobRun(5_000_000, 1.0, False), JobRun(4_000_000, 1.0, True)]) == []


def test_weekends_are_part_of_the_schedule_and_a_holiday_is_not() -> None:
    week = [DAY_S] * 4 + [3 * DAY_S]
    assert longest_typical_s(week * 2) == 3 * DAY_S
    assert longest_typical_s([*([DAY_S] * 20), 10 * DAY_S]) == DAY_S
    assert longest_typical_s([]) is None


@given(st.lists(st.floats(0, 1e7), max_size=90))
def test_whatever_the_runs_the_typical_value_is_within_their_range(seconds: list[float]) -> None:
    known = trim_runs(runs(*seconds))
    assert len(known) <= MAX_RUNS
    usual = typical_s(known)
    assert usual is None or min(seconds) <= usual <= max(seconds)
    assert len(typical_runs(known)) <= len(known)


def test_a_failed_run_is_not_typical() -> None:
    failed = [JobRun(0, 3000.0, True, whole=False), *runs(3600.0, 3700.0, 3650.0)]
    assert typical_s(failed) == 3650.0
    assert typical_s([JobRun(0, 3600.0, True, whole=True), *runs(3600.0, 3700.0)]) == 3600.0


def test_no_phase_is_reported_as_longer_than_its_run() -> None:
    reported = RunFacts(phases=(RunPhase("data", 13.0, 20.0), RunPhase("indexes", 2.0, 3.0)))
    assert [one.wall_s for one in limit_phases(reported, 12.0).phases] == [12.0, 2.0]


def test_a_long_source_name_is_stored_cut_so_that_it_can_be_read_back() -> None:
    run = make_run(0, 60.0, True, RunFacts(source="d" * 4096, version="1" * 200, last_error="e" * 4096))
    assert convert(to_builtins(run), JobRun) == run
    assert run.source == "d" * 252
