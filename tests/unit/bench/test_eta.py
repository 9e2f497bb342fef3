"""Evaluation of a predicted end: errors in the second half of a run, and percentages that decrease or end too early."""

from __future__ import annotations

from bench.databases import rows_of
from bench.eta import Reading, judge


def read(at: float, pct: float | None, eta_s: float | None) -> Reading:
    return Reading(at, pct, "estimated", eta_s, "data")


def test_only_the_second_half_is_evaluated_and_errors_are_shares_of_the_whole_time() -> None:
    judged = judge("a", 0.0, 100.0, [read(10, 1, 900), read(60, 40, 50), read(80, 70, 20), read(90, 80, None)])
    assert (judged.readings, judged.known, judged.worst_pct) == (3, 2, 10.0)
    assert judged.predicted == (910, 110, 100)


def test_an_explosion_lasts_as_long_as_the_time_left_is_more_than_twice_the_true_one() -> None:
    at = [(10, 100), (60, 81), (64, 80), (67, 70), (70, 61), (75, 50), (80, 50), (82, 30)]
    assert judge("a", 0.0, 100.0, [read(when, None, eta_s) for when, eta_s in at]).exploded_s == 10.0


def test_progress_that_falls_or_is_complete_before_the_end_is_counted() -> None:
    judged = judge("a", 0.0, 10.0, [read(1, 5, None), read(2, None, None), read(3, 4, None), read(9, 100, None)])
    assert (judged.backwards, judged.full) == (1, 1)
    assert judged.worst_pct is None


def test_both_databases_have_the_same_size() -> None:
    even, uneven = rows_of("even", 1_000_000_000), rows_of("uneven", 1_000_000_000)
    assert len(even) == len(uneven) == 10
    assert abs(sum(even.values()) - sum(uneven.values())) < 20
    assert uneven["big"] > 0.79 * sum(uneven.values())
