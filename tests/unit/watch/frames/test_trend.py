"""Where a series goes, and what must not predict anything."""

from __future__ import annotations

import random

import pytest

from dba_console.watch.frames.rates import fit_trend, mean_rate, recent_points, sample_points, slope, time_to_reach

Series = list[tuple[int, float]]


def every(step_s: float, values: list[float]) -> Series:
    return [(int(tick * step_s * 1e6), value) for tick, value in enumerate(values)]


def test_a_steady_rise_has_a_slope_and_a_fill_time() -> None:
    rising = every(1, [100 + 0.5 * tick for tick in range(120)])
    assert slope(rising) == pytest.approx(0.5)
    assert time_to_reach(rising, 200) == pytest.approx((200 - 159) / 0.5, abs=2)


def test_two_points_give_no_trend() -> None:
    assert slope(every(1, [1, 2])) is None
    assert time_to_reach(every(1, [1, 2]), 100) is None


def test_a_short_time_gives_no_trend_however_many_points_it_has() -> None:
    assert slope(every(0.25, [float(tick) for tick in range(200)])) is None


@pytest.mark.parametrize("at", range(10, 280, 10))
def test_a_burst_of_two_seconds_does_not_predict_a_full_disk(at: int) -> None:
    """10 GB written within two seconds, anywhere in five minutes of quiet."""
    values = [0.0 if tick < at else 5e9 if tick == at else 1e10 for tick in range(300)]
    assert time_to_reach(every(1, values), 1e11) is None


def test_a_burst_soon_after_the_start_does_not_predict_a_full_server() -> None:
    """50 connections opened by a pool within one to three seconds, anywhere in windows from 25 s on."""
    predicted = []
    for seconds in range(26, 60):
        for at in range(seconds):
            for took in (1, 2, 3):
                used = [50.0 * max(0.0, min(1.0, (tick - at + 1) / took)) for tick in range(seconds)]
                found = fit_trend(every(1, used), min_span_s=25)
                if found is not None and found.time_to_reach(247, gate=3) is not None:
                    predicted.append((seconds, at, took))
    assert predicted == []


def test_a_rise_that_started_earlier_is_detected() -> None:
    values = [100.0] * 150 + [100.0 + tick for tick in range(150)]
    assert slope(every(1, values)) == pytest.approx(1.0, rel=0.4)


def test_a_rise_that_has_ended_is_not_continued() -> None:
    values = [100.0 + tick for tick in range(150)] + [250.0] * 150
    assert time_to_reach(every(1, values), 1000) is None


def test_a_falling_value_reaches_no_upper_limit() -> None:
    assert time_to_reach(every(1, [500.0 - tick for tick in range(200)]), 600) is None


def test_a_reached_limit_has_no_remaining_time() -> None:
    assert time_to_reach(every(1, [100.0] * 100), 100) == 0.0


def test_noise_predicts_nothing() -> None:
    chance = random.Random(7)
    values = [50 + chance.gauss(0, 10) for _ in range(300)]
    assert time_to_reach(every(1, values), 100) is None


def test_a_rise_below_the_minimum_predicts_nothing() -> None:
    rising = every(1, [0.01 * tick for tick in range(300)])
    assert time_to_reach(rising, 100, gate=0.0) is not None
    assert time_to_reach(rising, 100, gate=5.0) is None


def test_minutes_do_not_predict_days() -> None:
    assert time_to_reach(every(1, [float(tick) for tick in range(120)]), 1e9) is None


def test_points_before_a_gap_do_not_count() -> None:
    broken = every(1, [float(tick) for tick in range(100)]) + [(3_600_000_000 + s * 1_000_000, 7.0) for s in range(5)]
    assert len(recent_points(broken, 1e9)) == 5
    assert fit_trend(broken) is None


def test_thinning_keeps_both_ends() -> None:
    thinned = sample_points(every(1, [float(tick) for tick in range(601)]), 25)
    assert (len(thinned), thinned[0][1], thinned[-1][1]) == (25, 0.0, 600.0)


def test_the_mean_rate_covers_everything_observed() -> None:
    assert mean_rate(every(30, [0, 100, 800, 900]), min_span_s=25) == 10.0


def test_a_counter_that_went_back_has_no_mean_rate() -> None:
    assert mean_rate(every(30, [900, 100, 200]), min_span_s=25) is None
