"""Growing connections: a fill estimate while they grow, and none for a pool that is fully open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random

import pytest

from dba_console.watch.connections.growth import ConnectionGrowth, estimate_growth, is_still_growing

SECOND = 1_000_000
USABLE = 247
Counts = list[tuple[int, float]]


def counted(counts: Iterable[float]) -> Counts:
    """One count a second."""
    return [(second * SECOND, count) for second, count in enumerate(counts)]


def growth_of(counts: Counts) -> ConnectionGrowth | None:
    """The growth, as the panel shows it."""
    found = estimate_growth(counts, USABLE)
    return (
        found if found is not None and found.full_in_s is not None and is_still_growing(counts, found.per_min) else None
    )


def filling_pool(quiet_s: int = 120) -> list[float]:
    """A pool of 180 that opens within half a minute, as an application server starts."""
    return [*[6.0] * quiet_s, *[6.0 + 6 * second for second in range(1, 31)]]


def test_a_steady_rise_has_a_fill_time() -> None:
    found = growth_of(counted(100 + second // 2 for second in range(61)))
    assert found is not None and found.full_in_s is not None
    assert found.per_min == pytest.approx(30, rel=0.1)
    assert found.full_in_s == pytest.approx((USABLE - 130) * 2, rel=0.1)


def test_a_rise_of_one_per_minute_has_its_fill_time_between_two_of_them_too() -> None:
    counts = counted(200 + second // 60 for second in range(400))
    reported = [estimate_growth(counts[:upto], USABLE) for upto in range(300, 400, 7)]
    assert all(is_still_growing(counts[:upto], 1.0) for upto in range(300, 400, 7))
    assert all(found is not None for found in reported)


def test_randomly_arriving_connections_are_a_rise_nearly_all_the_time() -> None:
    by_chance = Random(20)
    counts = counted(accumulate(by_chance.random() < 0.5 for _ in range(600)))
    kept = [is_still_growing(counts[:upto], 30.0) for upto in range(60, 600)]
    assert sum(kept) / len(kept) > 0.95


def test_a_pool_that_has_opened_all_its_connections_has_no_fill_time() -> None:
    since_then = [counted(filling_pool() + [186.0] * after) for after in range(10, 90)]
    trends = [estimate_growth(counts, USABLE) for counts in since_then]
    assert any(found is not None and found.full_in_s is not None for found in trends), "or this shows nothing"
    assert [growth_of(counts) for counts in since_then] == [None] * 80


@pytest.mark.parametrize("per_min", [30.0, 145.0])
def test_growth_that_ended_has_no_fill_time_after_some_seconds(per_min: float) -> None:
    grown = [50 + second * per_min / 60 for second in range(40)]
    assert is_still_growing(counted(grown), per_min)
    assert not is_still_growing(counted([*grown, *[grown[-1]] * 8]), per_min)


@pytest.mark.parametrize("counts", [[], [(0, 5.0)], [(0, 5.0), (SECOND, 5.0)], [(0, 9.0), (SECOND, 5.0)]])
def test_a_barely_observed_or_falling_value_has_no_fill_time(counts: Sequence[tuple[int, float]]) -> None:
    assert not is_still_growing(counts, 12.0)
    assert not is_still_growing(counts, -12.0)
