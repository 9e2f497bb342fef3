"""What runs before say of this one, and of a script whose file is read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dba_console.jobs.archives.object_durations import RunObject, RunPhase
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.toc import DumpEntry
from dba_console.jobs.following.job_estimate import (
    GrowthRate,
    RestoreConsumption,
    ScriptProgress,
    comparable_runs,
    database_directory,
    estimate_dump_bytes,
    estimate_script_progress,
    median_phases,
    written_pct,
)
from dba_console.jobs.history.run_statistics import JobRun
from dba_console.watch.samples.postgres import Database
from tests.readings import server
from tests.unit.jobs.archives.made_archives import plan_of_sizes

NIGHTS = [
    JobRun(0, seconds, True, size_bytes=1000, phases=(RunPhase("data", seconds / 2, seconds, 1000),))
    for seconds in (100.0, 110.0, 90.0)
]


def test_the_last_runs_give_the_typical_values_phase_by_phase() -> None:
    before = median_phases([JobRun(0, 9000.0, True), *NIGHTS, *NIGHTS])
    assert before is not None and before.wall_s == 100.0
    assert [(one.name, one.wall_s, one.busy_s, one.bytes) for one in before.phases] == [("data", 50.0, 100.0, 1000)]
    assert median_phases([]) is None


def test_the_objects_that_took_longest_are_remembered_each_by_its_median() -> None:
    took = [
        JobRun(0, 100.0, True, longest=(RunObject("INDEX", "public.slow", "indexes", seconds, 10),))
        for seconds in (30.0, 90.0, 34.0)
    ]
    before = median_phases([*NIGHTS, *took])
    entry = DumpEntry(dump_id=1, desc="INDEX", phase="indexes", schema="public", tag="slow", weight=10.0)
    assert before is not None and before.seconds_of(entry) == 34.0
    assert before.seconds_of(structs.replace(entry, tag="another")) is None


def test_a_run_with_ten_times_the_size_is_not_comparable() -> None:
    assert comparable_runs(NIGHTS, 1100) == NIGHTS
    assert comparable_runs(NIGHTS, 10_000) == []
    assert comparable_runs(NIGHTS, None) == NIGHTS


@pytest.mark.parametrize(
    ("read", "elapsed_s", "read_at_s", "expected"),
    [
        (0.01, 1.0, None, ScriptProgress(0.5, None)),
        (0.5, 25.0, None, ScriptProgress(25.0, 75.0)),
        (1.0, 75.0, 50.0, ScriptProgress(75.0, 25.0)),
        (1.0, 900.0, 50.0, ScriptProgress(99.0, None)),
    ],
)
def test_a_script_has_the_progress_of_its_file_and_then_that_of_previous_runs(
    read: float, elapsed_s: float, read_at_s: float | None, expected: ScriptProgress
) -> None:
    share = estimate_script_progress(read, elapsed_s, read_at_s, NIGHTS)
    assert share is not None
    assert (round(share.pct, 3), None if share.eta_s is None else round(share.eta_s, 3)) == expected


def test_a_script_without_previous_runs_has_no_total_progress() -> None:
    assert estimate_script_progress(0.5, 25.0, None, NIGHTS[:1]) is None
    assert estimate_script_progress(0.5, 25.0, None, [JobRun(0, 100.0, True)] * 3) is None


def test_a_dump_needs_space_for_the_rest_at_its_rate_so_far() -> None:
    assert estimate_dump_bytes(100, 200.0, 1000.0, 0.9) == 400.0
    assert estimate_dump_bytes(1, 10.0, 1000.0, 0.5) == 499.0, "too little was written: as the run before"
    assert estimate_dump_bytes(1, 10.0, 1000.0, None) is None
    assert estimate_dump_bytes(5, None, None, 0.5) is None


def test_the_space_a_restore_needs_is_reported_once_enough_was_observed() -> None:
    disk = RestoreConsumption()
    assert disk.remaining_bytes(20.0, -1000) is None
    assert disk.remaining_bytes(25.0, -900) is None
    assert disk.remaining_bytes(40.0, -800) == 600.0
    assert disk.remaining_bytes(50.0, -1200) is None, "others gave back more than it took"


def test_the_space_of_a_restore_follows_what_is_written_not_its_time() -> None:
    progress = ObjectProgress(plan_of_sizes([100, 300], keys=True), "pg_restore", 2)
    assert written_pct(progress) == 0.0
    progress.observe_running(1001, 5, done=150.0, total=300.0, unit="bytes")
    # of each table: its rows, an index of 0.15 and two of 0.3 of their size
    assert written_pct(progress) == pytest.approx(100 * 150 / (400 * 1.75))
    for number in (1000, 1001, 20_000, 20_001, *range(40_000, 40_004)):
        progress.observe_finished(number)
    assert written_pct(progress) == 100.0, "the keys write nothing"


def test_a_rate_is_reported_after_five_seconds_and_restarts_for_a_new_file() -> None:
    growth = GrowthRate()
    rates = []
    for mono_us, amount in ((0, 0), (4_000_000, 400), (10_000_000, 1000), (11_000_000, 5)):
        growth.add(mono_us, amount)
        rates.append(growth.per_s)
    assert rates == [None, None, 100.0, None]


def database(name: str, tablespace: str | None = None) -> Database:
    return Database(1, name, "UTF8", -1, True, False, tablespace)


@pytest.mark.parametrize(
    ("reported", "place"),
    [
        ({}, "/data"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app")]}, "/data"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app", "fast")]}, "/fast"),
        ({"tablespaces": {"own": "pg_tblspc/7"}, "databases": [database("app", "own")]}, "/data/pg_tblspc/7"),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("other")]}, None),
        ({"tablespaces": {"fast": "/fast"}, "databases": [database("app", "newer")]}, None),
        ({"data_directory": None}, None),
    ],
)
def test_a_database_grows_in_its_tablespace_and_an_unknown_one_elsewhere(
    reported: dict[str, Any], place: str | None
) -> None:
    assert database_directory(server(**{"data_directory": "/data", **reported}), "app") == place
