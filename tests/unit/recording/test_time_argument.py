"""TIME as people write it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dba_console.core.errors import UsageError
from dba_console.recording.session_lookup import parse_when
from dba_console.watch.samples.event import Event


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


FIRST, LAST = _us("2026-11-19 22:00:00"), _us("2026-11-20 14:00:00")
EVENTS = [
    Event(wall_us=FIRST + 5, kind="mark", text="before the restart"),
    Event(wall_us=FIRST + 7, kind="mark", text="after the restart", occurred_us=FIRST + 6),
    Event(wall_us=FIRST + 8, kind="finding.silenced", text="…", details={"id": "io.reclaim", "chain": ["io.reclaim"]}),
    Event(wall_us=FIRST + 9, kind="finding.raised", text="…", details={"id": "io.reclaim"}),
    Event(wall_us=FIRST + 10, kind="finding.changed", text="…", details={"id": "io.reclaim", "chain": ["io.slow:vda"]}),
]


def _when(text: str) -> int:
    return parse_when(text, first_us=FIRST, last_us=LAST, events=EVENTS)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-20T12:00:00Z", "2026-11-20 12:00:00"),
        ("2026-11-20T13:00:00+01:00", "2026-11-20 12:00:00"),
        ("2026-11-20 13:00:00", "2026-11-20 12:00:00"),
        ("14:53:07", "2026-11-20 13:53:07"),
        ("23:30", "2026-11-19 22:30:00"),
        ("+90s", "2026-11-19 22:01:30"),
        ("-10m", "2026-11-20 13:50:00"),
    ],
)
def test_a_time_is_resolved_within_the_session(text: str, utc: str) -> None:
    assert _when(text) == _us(utc)


def test_fractions_of_a_second_are_kept() -> None:
    assert _when("14:53:07.5") == _us("2026-11-20 13:53:07") + 500_000


def test_a_mark_is_resolved_to_the_time_it_is_about() -> None:
    assert _when("mark:before") == FIRST + 5
    assert _when("mark:after the") == FIRST + 6


def test_a_finding_is_found_by_its_name_from_the_time_it_was_raised() -> None:
    assert _when("finding:io.reclaim") == FIRST + 9


def test_a_finding_that_is_part_of_another_is_found_by_its_own_name() -> None:
    assert _when("finding:io.slow") == FIRST + 10
    assert _when("finding:io.slow:vda") == FIRST + 10


@pytest.mark.parametrize(
    "text", ["", "yesterday", "25:00", "mark:never", "finding:none", "+x", "-", "2026-13-01", "9" * 40]
)
def test_an_invalid_time_is_reported_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        _when(text)
    assert raised.value.hint
