"""Tampering and damage are found, and the first bad record is named."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.cli.session import verify_lines
from dba_console.recording.journal import LogLine
from dba_console.recording.recording import Recording
from dba_console.recording.sample_block import BlockWriter, SampleBlock
from dba_console.recording.verify import ALWAYS_UNCHECKED, verify
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import encode_sample
from tests.unit.recording.recordings import record_samples, recorder, ticks


@pytest.fixture
def session(tmp_path: Path) -> Path:
    made = recorder(tmp_path)
    record_samples(made, ticks(12) + ticks(13, first=15))
    made.put_lines([LogLine(n, "STEP", f"line {n}") for n in range(4)])
    for n in range(4):
        made.put_event(Event(wall_us=n, kind="mark", text=f"mark {n}"))
    made.close("done")
    return made.directory


def _change(directory: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(directory / "session.db")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_an_unchanged_session_is_verified(session: Path) -> None:
    found = verify(session)
    assert (found.ok, found.first_bad, found.events, found.blocks) == (True, None, 7, 3)
    assert found.checked == [
        "7 events", "3 blocks with chart values", "1 gap", "4 lines of output", "session metadata",
    ]  # fmt: skip
    assert found.unchecked == list(ALWAYS_UNCHECKED)


def test_the_result_states_what_it_covers_and_what_not(session: Path) -> None:
    lines = verify_lines("s", verify(session))
    assert lines[:3] == [
        "s: verified",
        "checked: 7 events, 3 blocks with chart values, 1 gap, 4 lines of output, session metadata",
        "not checked: session.log, out/, output files and summaries of runs",
    ]


def _change_event(directory: Path, seq: int, **changed: object) -> None:
    connection = sqlite3.connect(directory / "session.db")
    (line,) = connection.execute("SELECT line FROM journal WHERE seq = ?", (seq,)).fetchone()
    connection.close()
    _change(directory, "UPDATE journal SET line = ? WHERE seq = ?", json.dumps({**json.loads(line), **changed}), seq)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE journal SET line = replace(line, 'mark 1', 'mark 9')", "event 4"),
        ("UPDATE journal SET wall_us = wall_us + 1 WHERE seq = 2", "event 2"),
        ("UPDATE journal SET line = '{}' WHERE seq = 4", "event 4"),
        ("DELETE FROM journal WHERE seq = 4", "event 4"),
        ("DELETE FROM journal WHERE seq > 5", "event 6"),
        ("DELETE FROM blocks WHERE first_seq = 11", "block 11"),
        ("UPDATE meta SET value = 'elsewhere' WHERE key = 'target'", "session metadata"),
        ("UPDATE meta SET value = 'db9' WHERE key = 'host'", "session metadata"),
        ("INSERT OR REPLACE INTO meta VALUES ('continues', 'aabbccdd')", "session metadata"),
        ("UPDATE meta SET value = replace(value, 'done', 'killed') WHERE key = 'closed'", "the closing note"),
        ("DELETE FROM gaps", "gaps"),
        ("UPDATE gaps SET reason = 'nothing'", "gaps"),
        ("INSERT INTO gaps VALUES (1, 2, 3, 'invented')", "gaps"),
        ("UPDATE blocks SET points_size = 0 WHERE first_seq = 11", "block 11"),
        ("UPDATE blocks SET at = 0, size = (SELECT size FROM blocks) WHERE first_seq = 11", "block 11"),
        ("UPDATE blocks SET first_us = first_us + 3600000000, last_us = last_us + 3600000000", "block 1"),
        ("UPDATE blocks SET samples = 1 WHERE first_seq = 11", "block 11"),
        ("UPDATE output SET text = 'never said' WHERE rowid = 2", "output"),
        ("DELETE FROM output", "output"),
        ("DELETE FROM output WHERE rowid = 4", "output"),
        ("INSERT INTO output VALUES (9, 'STEP', 'put in', 'o', '', '', 0)", "output"),
    ],
)
def test_the_first_damaged_record_is_named(session: Path, statement: str, named: str) -> None:
    _change(session, statement)
    found = verify(session)
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.startswith((named + ":", named + " "))
    assert not any("since the last heartbeat" in note for note in found.notes)


def test_an_event_changed_with_valid_json_is_named(session: Path) -> None:
    _change_event(session, 3, text="never happened")
    assert (verify(session).first_bad or "").startswith("event 3: changed or inserted")


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9])
def test_any_changed_byte_of_the_samples_is_found(session: Path, at: float) -> None:
    path = session / "session.samples"
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)
    assert (verify(session).first_bad or "").startswith("block ")


def test_a_block_replaced_by_another_valid_one_is_detected(session: Path) -> None:
    with closing(Recording.open(session)) as recording:
        entry = recording.stored.blocks()[1]
        samples = SampleBlock(recording.stored.block(entry.first_seq)).samples()
    forged, records = BlockWriter(), b""
    for sample in samples[:-1]:
        records += forged.add(sample.seq, sample.wall_us, encode_sample(sample))
    path = session / "session.samples"
    data = path.read_bytes()
    path.write_bytes(data[: entry.at] + records.ljust(entry.size, b"\0") + data[entry.at + entry.size :])
    change = "UPDATE blocks SET size = ?, samples = ?, last_us = ? WHERE first_seq = ?"
    _change(session, change, len(records), len(samples) - 1, samples[-2].wall_us, entry.first_seq)
    assert verify(session).first_bad == "block 11: does not match its digest in the event chain"


def test_a_heartbeat_has_the_digests_of_blocks_before_the_session_is_closed(tmp_path: Path) -> None:
    made = recorder(tmp_path / "a")
    record_samples(made, ticks(20) + ticks(5, first=700))
    left = tmp_path / made.directory.name
    shutil.copytree(made.directory, left)
    made.close("done")
    with closing(Recording.open(left)) as recording:
        [beat] = [event for event in recording.events() if event.kind == "heartbeat"]
    assert "1" in beat.details["blocks"]  # of block 11, sealed about then, this one or the next tells
    assert verify(left).ok
    assert any("not closed" in note for note in verify(left).notes)
    _change(left, "DELETE FROM blocks WHERE first_seq = 1")
    assert verify(left).first_bad == "block 1: missing"


def test_the_end_event_has_the_digests_of_all_blocks_however_many_there_are(tmp_path: Path) -> None:
    """More lines than are written at once wait when it is closed."""
    made = recorder(tmp_path)
    record_samples(made, ticks(3))
    made.put_lines([LogLine(n, "STEP", f"line {n}") for n in range(4_500)])
    assert made.close("done")
    found = verify(made.directory)
    assert found.ok and "4500 lines of output" in found.checked, found


def test_samples_added_after_the_end_are_damage(session: Path) -> None:
    (late,) = ticks(1, first=900)
    with open(session / "session.samples", "ab") as file:
        file.write(BlockWriter().add(late.seq, late.wall_us, encode_sample(late)))
    assert "1 sample after the last block" in (verify(session).first_bad or "")
