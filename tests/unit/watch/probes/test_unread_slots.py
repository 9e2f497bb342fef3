"""Since when a slot has been unread, on servers that do not say it: as long as it was watched, and no longer."""

from __future__ import annotations

from typing import Any

from dba_console.watch.replication.readings import MAX_GAP_US, Slot, UnreadSlots
from tests.readings import of

SECOND = 1_000_000


def slot(**fields: Any) -> Slot:
    return of(Slot, **{"name": "old", "kind": "physical", "restart_lsn": 100, **fields})


def since(unread: UnreadSlots, at_s: int, **fields: Any) -> int | None:
    """Seconds, as reported by a reading at that second."""
    (reported,) = unread.with_unread_since([slot(**fields)], at_s * SECOND)
    return None if reported.unread_since is None else reported.unread_since // SECOND


def test_a_slot_is_unread_since_its_first_observation_as_unread() -> None:
    unread = UnreadSlots()
    assert [since(unread, at) for at in (10, 12, 14)] == [10, 10, 10]


def test_a_reader_or_an_advanced_position_ends_the_unread_state() -> None:
    unread = UnreadSlots()
    assert since(unread, 10) == 10
    assert since(unread, 12, active_pid=7) is None
    assert since(unread, 14) == 14
    assert since(unread, 16, restart_lsn=101) == 16, "read by function between two looks"
    assert since(unread, 18, restart_lsn=101, confirmed_flush_lsn=5) == 18


def test_after_a_gap_earlier_observations_do_not_count() -> None:
    unread = UnreadSlots()
    assert since(unread, 10) == 10
    late = 11 + MAX_GAP_US // SECOND
    assert since(unread, late) == late


def test_values_reported_by_the_server_take_precedence() -> None:
    unread = UnreadSlots()
    assert since(unread, 1000, inactive_since=3 * SECOND) == 3
