"""The day a job no longer fits its window: forecast only where the runs allow it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dba_console.jobs.history.duration_trend import (
    MIN_RUNS,
    JobWindows,
    PastRun,
    comparable_runs,
    duration_trend,
    forecast_window,
)
from tests.jobs import DAY_US, NOW_US, job, nightly_runs

HOUR = 3600.0


def test_a_job_that_grows_a_minute_a_night_has_the_day_it_outgrows_its_window() -> None:
    found = forecast_window(nightly_runs(30), 3 * HOUR)
    assert found.trend.verdict == "grows" and 59 < (found.trend.per_day_s or 0) < 63
    assert found.earliest_us and found.day_us and found.latest_us
    assert found.earliest_us <= found.day_us <= found.latest_us
    assert 85 < (found.day_us - NOW_US) / DAY_US < 95


def test_a_hung_and_a_cancelled_night_do_not_move_the_day() -> None:
    runs = list(nightly_runs(30))
    usual = forecast_window(runs, 3 * HOUR).day_us or 0
    runs[20] = structs.replace(runs[20], seconds=9 * HOUR)
    runs[25] = structs.replace(runs[25], seconds=1.0, counts=False)
    moved = forecast_window(runs, 3 * HOUR)
    assert abs((moved.day_us or 0) - usual) < 3 * DAY_US and moved.over == 1


def test_few_runs_or_few_days_give_no_forecast() -> None:
    assert duration_trend(nightly_runs(MIN_RUNS - 1)).verdict == "few" and duration_trend([]).runs == 0
    hourly = [
        structs.replace(run, started_us=NOW_US + place * DAY_US // 24) for place, run in enumerate(nightly_runs(30))
    ]
    found = forecast_window(hourly, 2 * HOUR)
    assert found.trend.verdict == "few" and found.day_us is None and not found.beyond


def test_scattered_runs_are_steady_and_fit() -> None:
    found = forecast_window(nightly_runs(30, grows_s=0.0), 3 * HOUR)
    assert found.trend.verdict == "steady" and found.day_us is None and not found.beyond


def test_a_job_beyond_its_window_is_reported_and_a_shrinking_one_gets_no_day() -> None:
    assert forecast_window(nightly_runs(30), HOUR).beyond
    shrinking = forecast_window(nightly_runs(30, first_s=9000.0, grows_s=-60.0), 4 * HOUR)
    assert shrinking.trend.verdict == "shrinks" and shrinking.day_us is None and not shrinking.beyond


def test_a_day_beyond_what_the_runs_can_predict_is_not_reported() -> None:
    found = forecast_window(nightly_runs(30), 10 * HOUR)
    assert found.too_far and found.day_us is None


def test_failed_and_differently_made_runs_are_not_used() -> None:
    alone = [structs.replace(run, jobs=1, seconds=5 * HOUR) for run in nightly_runs(10)]
    failed = [structs.replace(run, errors=3) for run in nightly_runs(3)]
    unseen = [structs.replace(run, jobs=None, format=None) for run in nightly_runs(2)]
    assert comparable_runs([*alone, *unseen, *failed, *nightly_runs(4)]) == [*unseen, *nightly_runs(4)]


def test_ended_does_not_mean_succeeded() -> None:
    run = PastRun(started_us=NOW_US, seconds=60.0)
    assert run.ending == "unknown"
    assert structs.replace(run, exit=0).ending == "good" and structs.replace(run, whole=True).ending == "good"
    assert structs.replace(run, exit=0, errors=3).ending == "failed" and structs.replace(run, exit=1).ending == "failed"
    assert structs.replace(run, exit=0, exit_tells=False).ending == "unknown"


def test_a_job_has_its_own_window_or_the_common_one() -> None:
    windows = JobWindows(8 * HOUR, {"pg_dump of small": HOUR})
    assert windows.for_job(job("small")) == HOUR and windows.for_job(job("large")) == 8 * HOUR
    assert JobWindows().for_job(job("large")) is None


@given(
    st.lists(st.tuples(st.integers(0, 400), st.floats(0.0, 1e6)), max_size=40),
    st.none() | st.floats(1.0, 1e6),
)
def test_whatever_the_runs_the_days_are_in_order(runs: list[tuple[int, float]], window: float | None) -> None:
    made = [PastRun(started_us=NOW_US + day * DAY_US, seconds=seconds) for day, seconds in sorted(runs)]
    found = forecast_window(made, window)
    if found.day_us is not None:
        assert found.earliest_us is not None and found.latest_us is not None
        assert made[-1].started_us <= found.earliest_us <= found.day_us <= found.latest_us
        assert not found.beyond and found.trend.verdict == "grows"
