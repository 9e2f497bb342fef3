"""What a predicted end is held to: the second half of a run, and a share that neither falls nor is full too early."""

from __future__ import annotations

from bench.databases import rows_of
from bench.eta import Look, judge


def look(at: float, pct: float | None, eta_s: float | None) -> Look:
    return Look(at, pct, "estimated", eta_s, "data")


def test_only_the_second_half_is_judged_and_errors_are_shares_of_the_whole_time() -> None:
    judged = judge("a", 0.0, 100.0, [look(10, 1, 900), look(60, 40, 50), look(80, 70, 20), look(90, 80, None)])
    assert (judged.looks, judged.told) == (3, 2)
    assert (judged.worst_pct, judged.median_pct) == (10.0, 5.0)
    assert judged.left_pct == 12.5


def test_a_share_that_falls_or_is_full_before_the_end_is_counted() -> None:
    judged = judge("a", 0.0, 10.0, [look(1, 5, None), look(2, None, None), look(3, 4, None), look(9, 100, None)])
    assert (judged.backwards, judged.full) == (1, 1)
    assert judged.worst_pct is None


def test_both_databases_are_of_one_size() -> None:
    even, uneven = rows_of("even", 1_000_000_000), rows_of("uneven", 1_000_000_000)
    assert len(even) == len(uneven) == 10
    assert abs(sum(even.values()) - sum(uneven.values())) < 20
    assert uneven["big"] > 0.79 * sum(uneven.values())
