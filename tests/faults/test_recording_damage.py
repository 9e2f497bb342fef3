"""A damaged recording is read as far as it goes, and whatever is wrong is said: nothing but SessionError is raised."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.recording import Recording
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from tests.unit.recording.recordings import record, record_samples, recorder, ticks

PAGE = 16384


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 20 blocks."""
    made = recorder(tmp_path_factory.mktemp("sessions"))
    record_samples(made, ticks(100, sessions=60))
    for n in range(30):
        made.put_event(Event(wall_us=n, kind="mark", text=f"mark {n}"))
    record_samples(made, ticks(100, first=101, sessions=60))
    made.close("done")
    return made.directory


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose writer was never closed: much of it is in SQLite's log."""
    directory = tmp_path_factory.mktemp("sessions")
    made = recorder(directory / "a")
    record_samples(made, ticks(35))
    copy = directory / made.directory.name
    shutil.copytree(made.directory, copy)
    made.close("done")
    return copy


def _copy(directory: Path, base: Path) -> Path:
    return Path(shutil.copytree(directory, base / directory.name, dirs_exist_ok=True))


def _read_everything(directory: Path) -> int | None:
    """Everything a console asks of a recording; samples it could show, None where it was refused."""
    try:
        recording = Recording.open(directory)
    except SessionError as error:
        assert error.message
        return None
    try:
        shown, at = 0, recording.first_us
        found: int | None = at
        while found is not None:
            if recording.picture_at(found) is not None:
                shown += 1
            found = recording.step(found, 1)
        recording.step(recording.last_us, -1)
        recording.points(recording.first_us, recording.last_us)
        recording.events()
        recording.gaps()
        recording.refresh()
        return shown
    finally:
        recording.close()


def test_truncated_samples_are_read_up_to_the_cut(closed: Path, tmp_path: Path) -> None:
    samples = _copy(closed, tmp_path) / "session.samples"
    size = samples.stat().st_size
    for offset in sorted(random.Random(7).sample(range(size), 40), reverse=True):
        with open(samples, "r+b") as file:
            file.truncate(offset)
        shown = _read_everything(samples.parent)
        assert shown is not None
        assert abs(shown - 200 * offset / size) < 12


def test_a_truncated_database_loses_no_sample(closed: Path, tmp_path: Path) -> None:
    database = _copy(closed, tmp_path) / "session.db"
    size = database.stat().st_size
    for offset in sorted({*range(PAGE, size, PAGE), *random.Random(7).sample(range(1, size), 15)}, reverse=True):
        with open(database, "r+b") as file:
            file.truncate(offset)
        assert _read_everything(database.parent) == 200


def test_a_truncated_recording_reports_how_much_is_missing(closed: Path, tmp_path: Path) -> None:
    samples = _copy(closed, tmp_path) / "session.samples"
    with open(samples, "r+b") as file:
        file.truncate(samples.stat().st_size * 2 // 3)
    with closing(Recording.open(samples.parent)) as recording:
        assert recording.damage is not None
        assert "truncated" in recording.damage
        assert "samples" in recording.damage
    found = verify(samples.parent)
    assert not found.ok
    assert found.first_bad is not None


def test_any_page_of_either_file_may_be_overwritten(closed: Path, tmp_path: Path) -> None:
    for name, step in (("session.db", PAGE), ("session.samples", 1000)):
        path = _copy(closed, tmp_path / name) / name
        whole = path.read_bytes()
        for at in range(0, len(whole), max(step, len(whole) // 40)):
            noise = random.Random(at).randbytes(step)
            path.write_bytes(whole[:at] + noise + whole[at + step :])
            shown = _read_everything(path.parent)
            assert shown is not None
            assert shown >= (200 if name == "session.db" else 175)


def test_a_truncated_sqlite_wal_loses_no_sample(crashed: Path, tmp_path: Path) -> None:
    size = (crashed / "session.db-wal").stat().st_size
    assert size > 0
    for number, offset in enumerate(range(0, size, size // 12)):
        copy = _copy(crashed, tmp_path / str(number))
        with open(copy / "session.db-wal", "r+b") as file:
            file.truncate(offset)
        assert _read_everything(copy) == 35


def test_events_after_damage_in_the_log_of_sqlite_are_found(crashed: Path, tmp_path: Path) -> None:
    copy = _copy(crashed, tmp_path)
    expected = [(event.seq, event.text) for event in Recording.open(copy).events()]
    log = copy / "session.db-wal"
    data = bytearray(log.read_bytes())
    data[40] ^= 1  # in the first frame: SQLite ignores the whole log
    log.write_bytes(data)
    with closing(Recording.open(copy)) as recording:
        assert [(event.seq, event.text) for event in recording.events()] == expected
        assert [event.seq for event in recording.events(limit=1)] == [expected[-1][0]]


def test_the_database_file_alone_may_be_named(closed: Path) -> None:
    with closing(Recording.open(closed / "session.db")) as recording:
        assert recording.samples == 200


def test_events_are_found_where_their_btree_is_damaged(closed: Path, tmp_path: Path) -> None:
    copy = _copy(closed, tmp_path)
    database = copy / "session.db"
    with open(database, "r+b") as file:
        file.write(bytes(PAGE))
    with closing(Recording.open(copy)) as recording:
        assert recording.damage is not None
        assert len(recording.events()) == 32
        assert recording.samples == 200


def test_a_recording_restored_without_its_lock_and_wal_is_read(tmp_path: Path) -> None:
    directory = record(tmp_path, ticks(12))
    (directory / "session.lock").unlink()
    (directory / "session.log").unlink()
    assert _read_everything(directory) == 12
