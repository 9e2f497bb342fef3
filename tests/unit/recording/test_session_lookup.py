"""What `session list` knows of each session."""

from __future__ import annotations

from pathlib import Path

from dba_console.recording.session_lookup import list_sessions, pin
from tests.unit.recording.recordings import record, record_samples, recorder, ticks


def test_each_session_is_a_row_with_its_state(tmp_path: Path) -> None:
    closed = record(tmp_path, ticks(12))
    pin(closed)
    live = recorder(tmp_path)
    record_samples(live, ticks(4))
    (tmp_path / "notes").mkdir()
    rows = {row.id: row for row in list_sessions(tmp_path)}
    assert len(rows) == 2
    row = rows[closed.name[-8:]]
    assert (row.state, row.samples, row.pinned, row.target, row.host) == ("closed", 12, True, "appdb", "db2")
    assert row.duration_s == 12.0
    assert row.bytes > 0
    assert (rows[live.meta.id].state, rows[live.meta.id].pinned) == ("live", False)
    live.close("done")


def test_a_session_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    directory = record(tmp_path, ticks(3))
    for name in ("session.db", "session.samples"):
        (directory / name).write_bytes(b"\0" * 5000)
    (row,) = list_sessions(tmp_path)
    assert row.state == "unreadable"
    assert row.note
    assert row.samples is None


def test_without_sessions_the_list_is_empty(tmp_path: Path) -> None:
    assert list_sessions(tmp_path / "nothing") == []
