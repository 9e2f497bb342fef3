"""The quiet hour holds what an ordinary day holds, whatever span it is drawn together to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.quiet_load.clients import POOL
from bench.quiet_load.drive import ACTIVITIES
from bench.quiet_load.place import SETTINGS
from bench.quiet_load.schedule import HOUR_S, names, quiet_hour, schedule


def test_every_activity_of_the_hour_is_implemented_and_every_implemented_one_is_used() -> None:
    assert names() == set(ACTIVITIES)


@pytest.mark.parametrize("span_s", [20.0, 600.0, HOUR_S])
def test_every_activity_fits_into_the_span(span_s: float) -> None:
    entries = schedule(span_s)
    assert max(entry.at_s + entry.lasts_s for entry in entries) <= span_s
    assert {entry.name for entry in entries} == names()


def test_a_shorter_span_keeps_the_order_of_the_hour() -> None:
    assert [entry.name for entry in schedule(60.0)] == [entry.name for entry in quiet_hour()]


def test_the_standby_is_never_started_twice_at_once() -> None:
    spells = [(entry.at_s, entry.at_s + entry.lasts_s) for entry in quiet_hour() if entry.name == "standby connected"]
    assert len(spells) == 2
    assert spells[0][1] < spells[1][0]


def test_pools_leave_as_many_connections_as_on_an_ordinary_day() -> None:
    """Ordinary means: well under the limit. Two pools at once would not be."""
    pools = [(entry.at_s, entry.at_s + entry.lasts_s) for entry in quiet_hour() if entry.name.startswith("pool ")]
    assert all(first[1] < second[0] for first, second in pairwise(pools))
    assert int(SETTINGS["max_connections"]) * 0.8 > POOL
