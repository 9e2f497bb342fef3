"""Sequences that run out, with their dates; indexes and collations are tried on real servers in tests/findings."""

from __future__ import annotations

from typing import Any

from dba_console.watch.safety.readings import CatalogFaults, InvalidIndex, SequenceUsage
from tests.readings import of
from tests.unit.watch.findings.reading_ticks import ReadingTicks, only, primary

TURN_S = 300.0
"""The cadence of pg.catalog."""
END = 2_147_483_647


def reading_ticks(name: str) -> ReadingTicks:
    return ReadingTicks(name)


def faults(**fields: Any) -> dict[str, Any]:
    return {"pg.server": primary(), "pg.catalog": of(CatalogFaults, database="shop", **fields)}


def sequence(last: int, **fields: Any) -> dict[str, Any]:
    made = {
        "name": "public.orders_id_seq",
        "column": "orders.id",
        "last": last,
        "start": 1,
        "stop": END,
        "increment": 1,
    }
    return faults(sequences=[of(SequenceUsage, **{**made, **fields})])


def test_a_sequence_is_a_warning_at_85_and_critical_at_95_percent() -> None:
    ticks = reading_ticks("sequence-full")
    assert ticks.tick(sequence(END * 84 // 100)) == {}
    found = only(ticks.tick(sequence(END * 86 // 100)))
    assert (found.id, found.severity) == ("sequence-full:shop.public.orders_id_seq", "warning")
    assert found.text.startswith("Sequence public.orders_id_seq of database shop, for column orders.id, has used 86%")
    assert only(ticks.tick(sequence(END * 96 // 100))).severity == "critical"


def test_a_sequence_that_ends_within_a_day_is_critical_whatever_its_percentage() -> None:
    ticks = reading_ticks("sequence-full")
    ticks.tick(sequence(END // 2))
    ticks.tick(sequence(END // 2 + 10_000_000), after_s=TURN_S)
    found = only(ticks.tick(sequence(END // 2 + 20_000_000), after_s=TURN_S))
    assert found.severity == "critical" and ", used up in 8h" in found.text


def test_a_descending_sequence_ends_at_its_minimum() -> None:
    found = only(reading_ticks("sequence-full").tick(sequence(-990, start=-1, stop=-1000, increment=-1)))
    assert found.evidence["numbers_left"] == 10


def test_unknown_values_of_sequences_and_indexes_raise_nothing() -> None:
    for name in ("sequence-full", "invalid-index"):
        assert reading_ticks(name).tick(faults(sequences=None, indexes=None)) == {}


def test_an_invalid_index_is_reported_after_ten_minutes_and_not_if_fixed_before() -> None:
    ticks = reading_ticks("invalid-index")
    index = InvalidIndex("public.orders_at", "orders", True, 100)
    assert ticks.tick(faults(indexes=[index])) == {}
    assert ticks.tick(faults(indexes=[]), after_s=TURN_S) == {}
    assert ticks.tick(faults(indexes=[index]), after_s=TURN_S) == {}
    assert ticks.tick(faults(indexes=[index]), after_s=TURN_S) == {}
    found = only(ticks.tick(faults(indexes=[index]), after_s=TURN_S))
    assert found.text == (
        "No query uses index public.orders_at of table orders in database shop: it is invalid and not being built, "
        "and every write to the table maintains it"
    )
