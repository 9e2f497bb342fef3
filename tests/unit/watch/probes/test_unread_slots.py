"""Since when a slot has been unread, on servers that do not say it: as long as it was watched, and no longer."""

from __future__ import annotations

from typing import Any

from dba_console.watch.probes.postgres.readings import MAX_GAP_US, UnreadSlots
from dba_console.watch.samples import postgres
from tests.readings import of

SECOND = 1_000_000


def slot(**fields: Any) -> postgres.Slot:
    return of(postgres.Slot, **{"name": "old", "kind": "physical", "restart_lsn": 100, **fields})


def since(unread: UnreadSlots, at_s: int, **fields: Any) -> int | None:
    """Seconds, as told by a reading at that second."""
    (told,) = unread.with_unread_since([slot(**fields)], at_s * SECOND)
    return None if told.unread_since is None else told.unread_since // SECOND


def test_it_is_unread_since_it_was_first_seen_so() -> None:
    unread = UnreadSlots()
    assert [since(unread, at) for at in (10, 12, 14)] == [10, 10, 10]


def test_a_reader_or_a_position_that_moved_ends_it() -> None:
    unread = UnreadSlots()
    assert since(unread, 10) == 10
    assert since(unread, 12, active_pid=7) is None
    assert since(unread, 14) == 14
    assert since(unread, 16, restart_lsn=101) == 16, "read by function between two looks"
    assert since(unread, 18, restart_lsn=101, confirmed_flush_lsn=5) == 18


def test_after_a_break_what_was_seen_before_says_nothing() -> None:
    unread = UnreadSlots()
    assert since(unread, 10) == 10
    late = 11 + MAX_GAP_US // SECOND
    assert since(unread, late) == late


def test_what_the_server_says_itself_goes_before() -> None:
    unread = UnreadSlots()
    assert since(unread, 1000, inactive_since=3 * SECOND) == 3
