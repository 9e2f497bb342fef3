"""The recorder takes everything, waits for nothing, and says what it could not keep."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording import recorder as recorder_room
from dba_console.recording.backlog import Batch
from dba_console.recording.layout import session_directory
from dba_console.recording.recording import Recording
from dba_console.recording.store import Store
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import encode_sample
from tests.clocks import HeldClock
from tests.unit.recording.recordings import meta, record, record_samples, recorder, ticks


def _mark(text: str) -> Event:
    return Event(wall_us=1, kind="mark", text=text)


def _kinds(directory: Path) -> list[str]:
    with closing(Recording.open(directory)) as recording:
        return [event.kind for event in recording.events()]


def test_only_the_owner_may_read_the_session_files(tmp_path: Path) -> None:
    made = recorder(tmp_path / "sessions")
    record_samples(made, ticks(3))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.directory.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"session.db", "session.db-wal", "session.samples", "session.log", "session.lock"} <= set(modes)
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    made.close("done")


def test_the_directory_is_named_by_start_host_and_id(tmp_path: Path) -> None:
    about = meta()
    assert session_directory(tmp_path, about).name == f"20261120T145729Z-db2-{about.id}"


def test_every_sample_is_on_disk_before_its_block_is_full(tmp_path: Path) -> None:
    made = recorder(tmp_path, block=100)
    record_samples(made, ticks(7))
    with closing(Recording.open(made.directory)) as reading:
        assert reading.samples == 7
    made.close("done")


def test_two_recorders_never_write_to_one_session(tmp_path: Path) -> None:
    about = meta()
    made = recorder(tmp_path, about)
    with pytest.raises(SessionError, match="another process writes"):
        recorder(tmp_path, about)
    made.close("done")


def test_an_unusable_directory_is_reported_at_once(tmp_path: Path) -> None:
    about = meta()
    (session_directory(tmp_path, about) / "session.db").mkdir(parents=True)
    with pytest.raises(SessionError) as raised:
        recorder(tmp_path, about)
    assert raised.value.hint


def test_marks_are_numbered_chained_and_in_the_log(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.put_event(_mark("first"))
    made.put_event(_mark("second\nline"))
    made.close("done")
    log = (made.directory / "session.log").read_text()
    assert len(log.splitlines()) == 4
    assert "DBACONSOLE: second␊line" in log
    assert _kinds(made.directory) == ["session.start", "mark", "mark", "session.end"]


def test_the_database_can_be_read_with_sqlite_alone(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.put_event(Event(wall_us=1_795_186_649_123_000, kind="finding.raised", text="cache falls", tag="FINDING"))
    made.put_event(Event(wall_us=1, kind="step.start", text="begins", tag="PROMOTE"))
    made.close("done")
    connection = sqlite3.connect(made.directory / "session.db")
    finding = connection.execute("SELECT time, state, text FROM findings").fetchall()
    steps = connection.execute("SELECT step, state, text FROM steps").fetchall()
    lines = connection.execute("SELECT tag, text FROM lines").fetchall()
    connection.close()
    assert finding == [("2026-11-20T14:57:29.123Z", "raised", "cache falls")]
    assert steps == [("PROMOTE", "start", "begins")]
    assert ("FINDING", "cache falls") in lines


def test_a_closed_session_has_no_sqlite_wal(tmp_path: Path) -> None:
    directory = record(tmp_path, ticks(25))
    assert sorted(path.name for path in directory.iterdir()) == [
        "session.db", "session.lock", "session.log", "session.samples",
    ]  # fmt: skip


def test_missed_ticks_are_a_gap_with_its_reason(tmp_path: Path) -> None:
    samples = ticks(20)
    directory = record(tmp_path, samples[:5] + samples[12:])
    with closing(Recording.open(directory)) as recording:
        gaps = recording.gaps()
    assert [(gap.samples, gap.from_us, gap.to_us) for gap in gaps] == [(7, samples[4].wall_us, samples[12].wall_us)]
    assert "gap" in _kinds(directory)


def test_a_stalled_disk_does_not_delay_the_caller_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, let_go = threading.Event(), threading.Event()
    write = Store.write

    def stall(store: Store, batch: Batch) -> None:
        stalled.set()
        let_go.wait()
        write(store, batch)

    clock = HeldClock()
    monkeypatch.setattr(Store, "write", stall)
    made = recorder(tmp_path, clock=clock)
    assert stalled.wait(10)
    samples = ticks(300)
    for sample in samples:
        made.put_sample(sample, encode_sample(sample))
        if sample.seq % 50 == 0:
            _until_taken(made)
    clock.advance(400)
    status = made.status()
    assert status.state == "lagging"
    assert status.note is not None
    assert "stalled" in status.note
    assert status.lag_us > 0
    let_go.set()
    assert made.flush()
    assert made.status().state == "ok"
    assert made.close("done")
    with closing(Recording.open(made.directory)) as recording:
        assert recording.samples == 300
        assert recording.gaps() == []


def _until_taken(made: recorder_room.Recorder) -> None:
    with made._awake:
        assert made._awake.wait_for(lambda: not made._samples, 10)


def test_a_full_queue_drops_the_oldest_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_room, "QUEUE", 5)
    busy, let_go = threading.Event(), threading.Event()

    def slow_point(picture: object) -> dict[str, float]:
        busy.set()
        let_go.wait()
        return {}

    about = meta()
    made = recorder_room.Recorder(session_directory(tmp_path, about), about, HeldClock(), point_of=slow_point)
    samples = ticks(12)
    made.put_sample(samples[0], encode_sample(samples[0]))
    assert busy.wait(10)
    for sample in samples[1:]:
        made.put_sample(sample, encode_sample(sample))
    let_go.set()
    assert made.flush()
    dropped = made.status().dropped
    made.close("done")
    with closing(Recording.open(made.directory)) as recording:
        assert dropped > 0
        assert recording.samples == 12 - dropped
        assert sum(gap.samples for gap in recording.gaps()) == dropped


def test_a_point_that_cannot_be_computed_does_not_lose_the_sample(tmp_path: Path) -> None:
    def broken(picture: object) -> dict[str, float]:
        raise ZeroDivisionError

    about = meta()
    made = recorder_room.Recorder(session_directory(tmp_path, about), about, HeldClock(), point_of=broken)
    record_samples(made, ticks(3))
    made.close("done")
    with closing(Recording.open(made.directory)) as recording:
        assert recording.samples == 3


def test_events_of_the_recorder_are_announced(tmp_path: Path) -> None:
    heard: list[str] = []
    about = meta()
    made = recorder_room.Recorder(
        session_directory(tmp_path, about), about, HeldClock(), announce=lambda event: heard.append(event.kind)
    )
    made.close("done")
    assert heard == ["session.start", "session.end"]


def test_closing_twice_has_no_effect(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    assert made.close("done")
    assert made.close("again")
    assert _kinds(made.directory) == ["session.start", "session.end"]
