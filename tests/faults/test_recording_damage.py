"""A damaged recording is read as far as it goes, and whatever is wrong is said: nothing but SessionError is raised."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.recording import Recording
from dba_console.recording.verify import verify
from dba_console.watch.samples.event import Event
from tests.unit.recording.recordings import put, record, recorder, ticks

PAGE = 4096


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of 20 blocks."""
    made = recorder(tmp_path_factory.mktemp("sessions"))
    put(made, ticks(100, sessions=60))
    for n in range(30):
        made.put_event(Event(wall_us=n, kind="mark", text=f"mark {n}"))
    put(made, ticks(100, first=101, sessions=60))
    made.close("done")
    return made.directory


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose writer was never closed: much of it is in SQLite's log."""
    place = tmp_path_factory.mktemp("sessions")
    made = recorder(place / "a")
    put(made, ticks(35))
    copy = place / made.directory.name
    shutil.copytree(made.directory, copy)
    made.close("done")
    return copy


def _copy(directory: Path, place: Path) -> Path:
    return Path(shutil.copytree(directory, place / directory.name, dirs_exist_ok=True))


def _everything(directory: Path) -> int | None:
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


def test_a_file_cut_short_anywhere_is_read_as_far_as_it_goes(closed: Path, tmp_path: Path) -> None:
    size = (closed / "session.db").stat().st_size
    offsets = sorted({*range(0, size, PAGE), *random.Random(7).sample(range(size), 25)})
    database = _copy(closed, tmp_path) / "session.db"
    shown = {}
    for offset in reversed(offsets):
        with open(database, "r+b") as file:
            file.truncate(offset)
        shown[offset] = _everything(database.parent) or 0
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert all(count > 100 for offset, count in shown.items() if offset > size * 3 / 4)


def test_a_cut_recording_says_how_much_is_left(closed: Path, tmp_path: Path) -> None:
    database = _copy(closed, tmp_path) / "session.db"
    size = database.stat().st_size
    with open(database, "r+b") as file:
        file.truncate(size * 2 // 3)
    recording = Recording.open(database.parent)
    assert recording.damage is not None
    assert "truncated" in recording.damage
    assert "samples" in recording.damage
    recording.close()
    found = verify(database.parent)
    assert not found.ok
    assert found.first_bad is not None


def test_any_page_may_be_overwritten(closed: Path, tmp_path: Path) -> None:
    database = _copy(closed, tmp_path) / "session.db"
    whole = database.read_bytes()
    for page in range(0, len(whole) // PAGE, 2):
        noise = random.Random(page).randbytes(PAGE)
        database.write_bytes(whole[: page * PAGE] + noise + whole[(page + 1) * PAGE :])
        shown = _everything(database.parent)
        assert shown is not None
        assert shown >= 100


def test_a_log_of_sqlite_cut_anywhere_costs_only_what_it_held(crashed: Path, tmp_path: Path) -> None:
    size = (crashed / "session.db-wal").stat().st_size
    assert size > 0
    for number, offset in enumerate(range(0, size, size // 12)):
        copy = _copy(crashed, tmp_path / str(number))
        with open(copy / "session.db-wal", "r+b") as file:
            file.truncate(offset)
        _everything(copy)
    assert _everything(crashed) == 35


def test_the_database_alone_may_be_named(closed: Path) -> None:
    recording = Recording.open(closed / "session.db")
    assert recording.samples == 200
    recording.close()


def test_events_are_found_where_their_tree_is_broken(closed: Path, tmp_path: Path) -> None:
    copy = _copy(closed, tmp_path)
    database = copy / "session.db"
    with open(database, "r+b") as file:
        file.write(bytes(PAGE))
    recording = Recording.open(copy)
    assert recording.damage is not None
    assert len(recording.events()) == 32
    assert recording.samples == 200
    recording.close()


def test_a_recording_restored_without_its_lock_and_log_is_read(tmp_path: Path) -> None:
    directory = record(tmp_path, ticks(12))
    (directory / "session.lock").unlink()
    (directory / "session.log").unlink()
    assert _everything(directory) == 12
