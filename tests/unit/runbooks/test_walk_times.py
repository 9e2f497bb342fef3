"""Points in time as an author writes them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dba_console.core.errors import UsageError
from dba_console.runbooks.reading_kinds import parse_moment

NOON = datetime(2026, 11, 22, 12, 0, 0).astimezone()
"""Noon of the host, wherever it stands."""


def at(when: datetime) -> int:
    return int(when.timestamp() * 1e6)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("12:30", NOON + timedelta(minutes=30)),
        ("12:30:15", NOON + timedelta(minutes=30, seconds=15)),
        ("11:59", NOON + timedelta(hours=23, minutes=59)),
        ("12:00", NOON + timedelta(days=1)),
        ("2026-11-23T01:00:00Z", datetime.fromisoformat("2026-11-23T01:00:00+00:00")),
        ("2026-11-22 13:00", NOON + timedelta(hours=1)),
    ],
)
def test_a_time_of_day_is_its_next_occurrence_and_a_date_is_unchanged(text: str, then: datetime) -> None:
    assert parse_moment(text, at(NOON)) == at(then)


@pytest.mark.parametrize("text", ["noon", "25:00", "12", "", "2026-13-01T00:00:00Z"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_moment(text, at(NOON))
