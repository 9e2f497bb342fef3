"""Pasted chat lines keep their times, authors and every line."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dba_console.core.errors import UsageError
from dba_console.reports.imported_notes import ImportedNote, parse_chat, parse_zone

FIRST_US = int(datetime(2026, 11, 20, 13, 0, tzinfo=UTC).timestamp()) * 1_000_000
"""A session of three hours."""
LAST_US = FIRST_US + 3 * 3_600_000_000


def parsed(text: str, zone: str | None = "Europe/Berlin", day: date | None = None) -> list[ImportedNote]:
    read_zone = None if zone is None else parse_zone(zone)
    return parse_chat(text, zone=read_zone, first_us=FIRST_US, last_us=LAST_US, day=day)


def told(text: str, zone: str | None = "Europe/Berlin", day: date | None = None) -> list[tuple[str | None, str, str]]:
    """The notes: UTC time, author, text."""
    return [
        (
            None if note.occurred_us is None else f"{datetime.fromtimestamp(note.occurred_us / 1e6, UTC):%d %H:%M:%S}",
            note.author,
            note.text,
        )
        for note in parsed(text, zone, day)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-11-20T14:53:07Z anna: pool full", ("20 14:53:07", "anna", "pool full")),
        ("2026-11-20 14:53:07,5 +0100 anna: pool full", ("20 13:53:07", "anna", "pool full")),
        ("14:53 anna: pool full", ("20 13:53:00", "anna", "pool full")),
        ("[14:53:07] <@anna> pool full", ("20 13:53:07", "anna", "pool full")),
        ("14:53 < anna> pool full", ("20 13:53:00", "anna", "pool full")),
        ("14:53:07    anna | pool full", ("20 13:53:07", "anna", "pool full")),
        ("2026-11-20 14:53:07\tanna\tpool full", ("20 13:53:07", "anna", "pool full")),
        ("[14:53, 20.11.2026] Anna B: pool full", ("20 13:53:00", "Anna B", "pool full")),
        ("\u200e[20.11.26, 2:53:07\u202fPM] Anna: pool full", ("20 13:53:07", "Anna", "pool full")),
        ("20.11.26, 14:53 - Anna: pool full", ("20 13:53:00", "Anna", "pool full")),
        ("[11/20/2026 2:53 PM] Anna: pool full", ("20 13:53:00", "Anna", "pool full")),
        ("[14:53 • 20/11/2026] Anna Rossi:\npool full", ("20 13:53:00", "Anna Rossi", "pool full")),
        ("anna [2:53 PM]\npool full", ("20 13:53:00", "anna", "pool full")),
        ("14:53 5/6 nodes are down", ("20 13:53:00", "", "5/6 nodes are down")),
        ("[20/11 14:53] Anna: pool full", ("20 13:53:00", "Anna", "pool full")),
        ("Fri, 20 Nov 2026 14:53:07 +0100 pool full", ("20 13:53:07", "", "pool full")),
        ("Nov 20 14:53:07 db2 PGRESTORE: ALTER TABLE", ("20 13:53:07", "db2 PGRESTORE", "ALTER TABLE")),
        ("Anna  2:53 PM\npool full", ("20 13:53:00", "Anna", "pool full")),
        ("Anna — Today at 14:53\npool full", ("20 13:53:00", "Anna", "pool full")),
        ("Anna\n20/11 14:53\npool full", ("20 13:53:00", "Anna", "pool full")),
    ],
)
def test_the_time_and_author_of_each_chat_format_are_read(line: str, expected: tuple[str, str, str]) -> None:
    assert told(line) == [expected]


def test_following_messages_of_slack_keep_the_author_and_the_afternoon() -> None:
    anna = "Anna Schmidt\n  2:53 PM\nthe pool is full\nsecond line\n2:54\nrestarting it\n"
    assert told(anna + "\nBob\n  2:55 PM\nat 3:10 it is back") == [
        ("20 13:53:00", "Anna Schmidt", "the pool is full / second line"),
        ("20 13:54:00", "Anna Schmidt", "restarting it"),
        ("20 13:55:00", "Bob", "at 3:10 it is back"),
    ]


def test_lines_that_separate_days_set_the_date() -> None:
    friday = "--- Day changed Fri Nov 20 2026\n23:59 <anna> x\n00:01 <anna> y\n"
    sunday = "--- Log opened Sun Nov 22 00:00:01 2026\n00:02 <anna> z"
    assert [at for at, _, _ in told(friday + sunday)] == ["20 22:59:00", "20 23:01:00", "21 23:02:00"]


def test_an_hour_that_the_clock_repeats_is_read_in_the_order_of_the_lines() -> None:
    text = "2026-10-25 02:50 a\n02:10 b\n03:05 c"
    assert [at for at, _, _ in told(text)] == ["25 00:50:00", "25 01:10:00", "25 02:05:00"]


def test_a_time_without_a_zone_is_refused_without_the_option() -> None:
    with pytest.raises(UsageError, match="line 2: the time has no zone") as raised:
        parsed("2026-11-20T14:53Z a\n14:54 b", zone=None)
    assert "--zone" in (raised.value.hint or "")


def test_a_day_is_asked_for_if_the_session_has_the_time_on_several() -> None:
    with pytest.raises(UsageError, match="on 3 days") as raised:
        parse_chat("14:53 a", zone=UTC, first_us=FIRST_US, last_us=FIRST_US + 3 * 86_400_000_000)
    assert raised.value.hint == "name the first day: --date 2026-11-20"
    assert told("14:53 a", "UTC", date(2026, 11, 21)) == [("21 14:53:00", "", "a")]


def test_what_cannot_be_read_is_a_note_without_a_time() -> None:
    assert told("hello\n25:61 bad\n2026-13-45 14:53 bad\n14:53 good\nmore\n99:99 bad") == [
        (None, "", "hello"), (None, "", "25:61 bad"), (None, "", "2026-13-45 14:53 bad"),
        ("20 13:53:00", "", "good / more"), (None, "", "99:99 bad"),
    ]  # fmt: skip


def test_a_message_that_is_only_a_time_is_kept() -> None:
    assert told("14:53 anna: until when?\n15:30\n15:31 ok")[1] == ("20 14:30:00", "", "15:30")


def test_a_long_message_becomes_several_notes() -> None:
    assert [len(note.text) for note in parsed("14:53 " + "x" * 15_000)] == [7_000, 7_000, 1_000]


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                ["14:53 ", "[20.11.26, 14:53] A: ", "Anna", "  2:53 PM", "--- Day changed Nov 20 2026", "9:99"]
            ),
        ),
        max_size=8,
    ),
    st.sampled_from(["UTC", "local", "Pacific/Chatham", "-23:59"]),
)
def test_every_word_of_any_paste_is_in_a_note_or_a_time(lines: list[str], zone: str) -> None:
    text = "\n".join(lines)
    try:
        notes = parsed(text, zone)
    except UsageError:
        return
    kept = " ".join(f"{note.author} {note.text}" for note in notes)
    for line in lines:
        for word in line.split():
            if word.isalpha() and word not in ("Anna", "A", "Day", "changed", "Nov", "PM"):
                assert word in kept


def test_a_hostile_paste_is_read_in_linear_time() -> None:
    hostile = ["a" * 300_000, " " * 300_000 + "x", "1:" * 100_000, "anna " * 60_000, "<" * 100_000, "-" * 300_000]
    assert len(parsed("\n".join(["14:53 a", *hostile]))) >= 1
