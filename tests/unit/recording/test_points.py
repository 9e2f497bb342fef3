"""Chart values stored as columns."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.core.errors import Damaged
from dba_console.recording.points import pack_points, unpack_points

names = st.sampled_from(["connections.used", "mount:/data.used_bytes", "io.iowait_pct"])
numbers = st.one_of(st.floats(-1e15, 1e15), st.integers(-(1 << 52), 1 << 52).map(float))
points = st.lists(st.dictionaries(names, numbers, max_size=3), max_size=20)


@given(points)
def test_a_chart_value_is_restored_to_one_part_in_thirty_thousand(given_points: list[dict[str, float]]) -> None:
    walls = [1_795_000_000_000_000 + index * 1_000_003 for index in range(len(given_points))]
    back = unpack_points(pack_points(1, walls, given_points))
    assert [wall for wall, _ in back] == walls
    for (_, found), expected in zip(back, given_points, strict=True):
        assert set(found) == set(expected)
        assert all(
            math.isclose(found[name], value, rel_tol=1 / 30_000, abs_tol=1e-37) for name, value in expected.items()
        )


def test_whole_numbers_are_restored_exactly() -> None:
    sizes = [{"used_bytes": float(1 << 50) + tick} for tick in range(5)]
    assert [point for _, point in unpack_points(pack_points(1, range(5), sizes))] == sizes


def test_an_unknown_value_is_missing_and_not_zero() -> None:
    back = unpack_points(pack_points(1, [1, 2, 3], [{"a": 1.5}, {}, {"a": math.nan}]))
    assert [point for _, point in back] == [{"a": 1.5}, {}, {}]


def test_damaged_chart_values_are_refused() -> None:
    packed = bytearray(pack_points(1, [1], [{"a": 1.0}]))
    packed[-1] ^= 1
    with pytest.raises(Damaged):
        unpack_points(bytes(packed))
