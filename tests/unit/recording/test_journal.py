"""Events: one harmless line each, without secrets, chained."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.recording.hash_chain import ChainHead
from dba_console.recording.journal import event_of, link, log_line, one_line, tidy
from dba_console.watch.samples.event import Event

HOSTILE = "a\r\nNov 20 00:00:00 db2 DBACONSOLE: forged\x1b]0;title\x07\x00\x9b2J\u202e\u2028\ud800 end"


def _event(text: str = "something", **fields: object) -> Event:
    return Event(**{"wall_us": 1_795_186_649_000_000, "kind": "note", "text": text, **fields})  # type: ignore[arg-type]


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_hostile_text_becomes_one_line_without_control_characters() -> None:
    line = one_line(HOSTILE)
    assert line.isprintable()
    assert "forged" in line
    line.encode()


@given(st.text())
def test_no_text_makes_more_than_one_line_of_the_log(text: str) -> None:
    event = tidy(_event(text, tag=text, who=text))
    line = log_line(event.wall_us, "db2", event.tag, event.text)
    assert len(line.splitlines()) == 1


def test_a_log_line_has_the_syslog_format(in_utc: object) -> None:
    assert log_line(1_795_186_387_000_000, "db2", "DBACONSOLE", "text") == "Nov 20 14:53:07 db2 DBACONSOLE: text\n"
    early = log_line(1_793_545_387_000_000, "db2", "PGRESTORE", "x")
    assert early.startswith("Nov  1 ")


def test_no_secret_gets_into_an_event() -> None:
    event = tidy(_event("connect to host=db password=s3cret failed", details={"dsn": "postgresql://u:s3cret@db/x"}))
    assert "s3cret" not in event.text
    assert "s3cret" not in str(event.details)


def test_details_that_cannot_be_written_are_named_and_raise_nothing() -> None:
    assert tidy(_event(details={"what": object()})).details == {"unreadable": "dict"}


def test_every_event_is_chained_to_all_previous_ones() -> None:
    events = [tidy(_event(f"number {n}", details={"n": n})) for n in range(4)]
    rows = link(events, ChainHead.of("1a2b3c4d"))
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert len({row.hash for row in rows}) == 4
    assert link(events, ChainHead.of("another"))[0].hash != rows[0].hash
    assert link([tidy(_event("another")), *events[1:]], ChainHead.of("1a2b3c4d"))[3].hash != rows[3].hash


def test_linking_in_two_batches_gives_the_same_chain() -> None:
    events = [tidy(_event(f"number {n}")) for n in range(4)]
    whole = link(events, ChainHead.of("x"))
    first = link(events[:2], ChainHead.of("x"))
    assert first + link(events[2:], ChainHead(first[-1].seq, first[-1].hash)) == whole


def test_an_event_is_restored_from_its_row() -> None:
    event = tidy(_event(who="ada", occurred_us=5, severity="warning", details={"a": [1, {"b": None}]}))
    row = link([event], ChainHead(6, ChainHead.of("x").hash))[0]
    back = event_of(row)
    assert back.seq == 7
    assert (back.text, back.who, back.occurred_us, back.severity, back.details) == (
        event.text, event.who, event.occurred_us, event.severity, event.details,
    )  # fmt: skip
