"""CSV and JSON lines: the numbers of `show --json` under the same names, and text that cannot do harm."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.core.errors import UsageError
from dba_console.recording.recording import Recording
from dba_console.reports.export_formats import whole
from dba_console.reports.table_export import FORMULA_STARTS, find_table, tables, text_cell
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.postgres import HeldLock, Locks, LockWaiter
from tests.build import NOW_US, part, sample
from tests.readings import activity, sessions
from tests.unit.recording.recordings import record, record_samples, recorder, ticks
from tests.unit.reports.exports import PRACTICE, exported


def rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV, by the names without their units."""
    head, *found = csv.reader(io.StringIO(text))
    return [dict(zip([name.partition(" [")[0] for name in head], row, strict=True)) for row in found]


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_row_has_the_numbers_that_the_screen_showed_at_that_tick() -> None:
    recording = Recording.open(PRACTICE)
    *_, frame = whole(recording).frames()
    recording.close()
    last = rows(exported(PRACTICE, "csv"))[-1]
    assert last["at"] == "2026-11-20T21:39:38.901975Z"
    assert float(last["io.iowait_pct"]) == frame.io.iowait_pct
    assert int(last["connections.used"]) == frame.connections.used
    assert int(last["memory.free_bytes"]) == frame.memory.free_bytes
    assert last["target.role"] == "primary"
    assert frame.replication.lag_s is None
    assert last["replication.lag_s"] == ""


def test_the_header_has_the_unit_of_every_field() -> None:
    head = exported(PRACTICE, "csv").splitlines()[0].split(",")
    assert {"io.iowait_pct [%]", "io.read_bytes_per_s [bytes/s]", "connections.used", "target.uptime_s [s]"} <= {*head}
    first = objects(exported(PRACTICE, "jsonl"))[0]
    assert (first["table"], first["target"]) == ("panels", "shop:46367")
    assert first["fields"]["memory.free_bytes"] == "bytes"


def test_both_formats_hold_the_same_values() -> None:
    for name in ("io.devices", "locks.trees", "findings"):
        in_csv, (head, *in_json) = (
            rows(exported(PRACTICE, "csv", table=name)),
            objects(exported(PRACTICE, "jsonl", table=name)),
        )
        assert [list(row) for row in in_csv[:1]] == [list(head["fields"])]
        assert len(in_csv) == len(in_json) > 0
        for one, other in zip(in_csv, in_json, strict=True):
            for field, value in other.items():
                if isinstance(value, float):
                    assert float(one[field]) == value
                elif value is None:
                    assert one[field] == ""


def test_sessions_that_wait_are_rows_under_their_blocker(tmp_path: Path) -> None:
    waiting = [
        LockWaiter(2, [1], "relation", "RowExclusiveLock", "t", None),
        LockWaiter(3, [2], "tuple", "x", "t", None),
    ]
    readings = part("pg.activity", sessions(activity(1), activity(2, "active"), activity(3, "active")))
    locks = part("pg.locks", Locks(waiting, [HeldLock(1, "ShareLock", "t", "relation")]))
    found = rows(exported(record(tmp_path, [sample(readings, locks)]), "csv", table="locks.trees"))
    assert [(row["pid"], row["under"]) for row in found] == [("1", ""), ("2", "1"), ("3", "2")]


def test_one_tick_in_a_time_is_taken(tmp_path: Path) -> None:
    found = rows(exported(record(tmp_path, ticks(60)), "csv", every_s=15))
    assert len(found) == 4


def test_an_event_is_one_line_with_its_time_and_secrets_masked(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    text = "=cmd|' /C calc'!A0\n2026,forged alter role a password 'hunter2' \x1b[2J"
    made.put_event(Event(wall_us=NOW_US, occurred_us=NOW_US - 60_000_000, kind="note", text=text, who="ann"))
    record_samples(made, ticks(1))
    assert made.close("done")
    lines = exported(made.directory, "csv", table="events").splitlines()
    [note] = [row for row in rows("\n".join(lines)) if row["kind"] == "note"]
    assert note["text"].startswith("'=cmd")
    assert "hunter2" not in "".join(lines) + exported(made.directory, "jsonl", table="events")
    assert (note["at"], note["recorded_at"]) == ("2026-11-20T14:56:29Z", "2026-11-20T14:57:29Z")
    assert not any(line.startswith("2026,forged") for line in lines)


@given(st.text())
def test_no_text_becomes_a_formula_or_a_second_line(text: str) -> None:
    cell = text_cell(text)
    assert not cell.startswith(FORMULA_STARTS)
    assert len(cell.splitlines()) <= 1


def test_an_unknown_table_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"unknown table 'io.device'") as raised:
        find_table("io.device")
    assert raised.value.hint == "did you mean io.devices?"
    assert "sessions.rows" in tables()
