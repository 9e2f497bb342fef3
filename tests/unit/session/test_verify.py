"""Tampering and damage are found, and the first bad record is named."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from dba_console.samples.event import Event
from dba_console.session.blockformat import unpack
from dba_console.session.blockreader import BlockReader
from dba_console.session.blockwriter import BlockWriter
from dba_console.session.recording import Recording
from dba_console.session.verify import verify
from tests.unit.session.making import put, recorder, ticks


@pytest.fixture
def session(tmp_path: Path) -> Path:
    made = recorder(tmp_path)
    put(made, ticks(25))
    for n in range(5):
        made.put_event(Event(wall_us=n, kind="mark", text=f"mark {n}"))
    made.close("done")
    return made.directory


def _change(directory: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(directory / "session.db")
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_an_untouched_session_holds(session: Path) -> None:
    found = verify(session)
    assert (found.ok, found.first_bad, found.events, found.blocks) == (True, None, 7, 3)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE journal SET text = 'never happened' WHERE seq = 3", "event 3"),
        ("UPDATE journal SET wall_us = wall_us + 1 WHERE seq = 2", "event 2"),
        ("UPDATE journal SET details = '{\"a\":1}' WHERE seq = 4", "event 4"),
        ("DELETE FROM journal WHERE seq = 4", "event 4"),
        ("DELETE FROM journal WHERE seq > 5", "event 6"),
        ("UPDATE block_data SET data = substr(data, 1, 900) WHERE first_seq = 11", "block 11"),
        ("DELETE FROM block_data WHERE first_seq = 1", "block 1"),
        ("DELETE FROM blocks WHERE first_seq = 11", "block 11"),
    ],
)
def test_the_first_bad_record_is_named(session: Path, statement: str, named: str) -> None:
    _change(session, statement)
    found = verify(session)
    assert not found.ok
    assert found.first_bad is not None
    assert found.first_bad.startswith(named + ":")


def test_a_block_replaced_by_another_good_one_is_found(session: Path) -> None:
    connection = sqlite3.connect(session / "session.db")
    (data,) = connection.execute("SELECT data FROM block_data WHERE first_seq = 11").fetchone()
    connection.close()
    forged = BlockWriter()
    for sample in BlockReader(data).samples()[:-1]:
        forged.add(sample)
    sealed = forged.seal()
    unpack(sealed)
    _change(session, "UPDATE block_data SET data = ? WHERE first_seq = 11", sealed)
    found = verify(session)
    assert found.first_bad is not None
    assert found.first_bad.startswith("block 11: it is not the one")


def test_a_heartbeat_vouches_for_blocks_before_the_session_is_closed(tmp_path: Path) -> None:
    made = recorder(tmp_path / "a")
    put(made, ticks(20) + ticks(5, first=700))
    left = tmp_path / made.directory.name
    shutil.copytree(made.directory, left)
    made.close("done")
    recording = Recording.open(left)
    [beat] = [event for event in recording.events() if event.kind == "heartbeat"]
    recording.close()
    assert "1" in beat.details["blocks"]  # of block 11, sealed about then, this one or the next tells
    assert verify(left).ok
    assert any("not closed" in note for note in verify(left).notes)
    _change(left, "DELETE FROM blocks WHERE first_seq = 1")
    _change(left, "DELETE FROM block_data WHERE first_seq = 1")
    assert verify(left).first_bad == "block 1: missing"
