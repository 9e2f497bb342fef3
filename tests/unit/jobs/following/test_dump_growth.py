"""A growing directory is followed without reading all of it again and again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.jobs.following import dump_progress as module
from dba_console.jobs.following.dump_progress import COARSE_NS, DumpOutput, OutputGrowth
from tests.clocks import HeldClock

START_NS = 1_790_000_000 * 1_000_000_000


class Directory:
    """A dump's directory whose times the test sets, so that they lie as far apart as it wants."""

    def __init__(self, path: Path, clock: HeldClock) -> None:
        path.mkdir()
        self.path, self.clock = path, clock
        self._touch()

    def write(self, name: str, size: int) -> None:
        """A file written to now, of that size."""
        (self.path / name).write_bytes(b"x" * size)
        os.utime(self.path / name, ns=(self._now(), self._now()))
        self._touch()

    def _now(self) -> int:
        return self.clock.wall * 1000

    def _touch(self) -> None:
        os.utime(self.path, ns=(self._now(), self._now()))


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock(START_NS // 1000)


@pytest.fixture
def place(tmp_path: Path, clock: HeldClock) -> Directory:
    return Directory(tmp_path / "d", clock)


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories listed so far."""
    listed: list[str] = []
    listdir: Callable[[str], list[str]] = os.listdir

    def counted(path: str) -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    return listed


def ids(grown: OutputGrowth) -> tuple[list[int], list[int]]:
    """Dump ids running and newly finished."""
    return sorted(one.dump_id for one in grown.running), sorted(one.dump_id for one in grown.finished)


def test_files_start_grow_and_end(place: Directory, clock: HeldClock) -> None:
    output = DumpOutput(str(place.path), clock=clock)
    place.write("toc.dat", 100)
    place.write("11.dat.gz", 10)
    first = output.measure({"11.dat.gz"})
    assert (first.exists, first.size, first.files, ids(first)) == (True, 110, 2, ([11], []))
    assert first.running[0].found_us is None, "it was there before anybody looked"
    clock.advance(2)
    place.write("11.dat.gz", 30)
    place.write("12.dat.gz", 5)
    second = output.measure({"12.dat.gz"})
    assert (second.size, ids(second)) == (135, ([12], [11]))
    assert (second.finished[0].size, second.running[0].found_us) == (30, clock.wall)
    clock.advance(2)
    assert ids(output.measure(())) == ([], [12])
    assert ids(output.measure(())) == ([], []), "each is told to have finished once"


def test_a_file_opened_after_its_processes_were_read_is_not_reported_as_finished(
    place: Directory, clock: HeldClock
) -> None:
    output = DumpOutput(str(place.path), clock=clock)
    place.write("11.dat.gz", 0)
    assert ids(output.measure(())) == ([11], [])


def test_without_open_files_the_last_written_ones_count_as_running(place: Directory, clock: HeldClock) -> None:
    output = DumpOutput(str(place.path), clock=clock)
    for number in (11, 12, 13):
        place.write(f"{number}.dat", 10)
        clock.advance(1)
    clock.advance(60)
    place.write("14.dat", 10)
    grown = output.measure(None, jobs=2)
    assert ids(grown) == ([13, 14], [11, 12])


def test_an_unchanged_directory_is_listed_once(place: Directory, clock: HeldClock, listings: list[str]) -> None:
    output = DumpOutput(str(place.path), clock=clock)
    place.write("11.dat", 1)
    clock.advance(60)
    for _ in range(5):
        output.measure({"11.dat"})
        clock.advance(2)
    assert len(listings) == 1


def test_a_directory_listed_during_its_change_is_listed_once_more(
    place: Directory, clock: HeldClock, listings: list[str]
) -> None:
    """Two files of one tick of the file system's clock leave the same time on their directory."""
    output = DumpOutput(str(place.path), clock=clock)
    output.measure(())
    before = place.path.stat().st_mtime_ns
    (place.path / "11.dat").write_bytes(b"x")
    os.utime(place.path, ns=(before, before))
    clock.advance(COARSE_NS / 1e9)
    assert output.measure({"11.dat"}).files == 1
    clock.advance(2)
    output.measure({"11.dat"})
    assert len(listings) == 2


def test_many_files_are_read_gradually(place: Directory, clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATS", 4)
    for number in range(10):
        place.write(f"{number}.dat", 1)
    clock.advance(60)
    output = DumpOutput(str(place.path), clock=clock)
    seen = []
    for _ in range(4):
        grown = output.measure(())
        seen.append((grown.pending, len(grown.finished), grown.size))
        clock.advance(2)
    assert seen == [(6, 4, 4), (2, 4, 8), (0, 2, 10), (0, 0, 10)]


def test_a_finished_file_is_not_read_again(place: Directory, clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        place.write(f"{number}.dat", 1)
    clock.advance(60)
    output = DumpOutput(str(place.path), clock=clock)
    output.measure({"3.dat"})
    looked: list[str] = []
    lstat = os.lstat

    def counted(path: str) -> os.stat_result:
        looked.append(Path(path).name)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", counted)
    output.measure({"3.dat"})
    assert looked == ["3.dat"]


def test_a_restarted_dump_is_followed_from_its_start(place: Directory, clock: HeldClock) -> None:
    output = DumpOutput(str(place.path), clock=clock)
    place.write("11.dat", 50)
    output.measure({"11.dat"})
    (place.path / "11.dat").unlink()
    clock.advance(5)
    assert output.measure(()).size == 0
    place.write("11.dat", 7)
    clock.advance(5)
    assert (output.measure({"11.dat"}).size, ids(output.measure({"11.dat"}))) == (7, ([11], []))


def test_an_output_that_is_not_a_directory_has_its_size_or_the_reason(tmp_path: Path, clock: HeldClock) -> None:
    (tmp_path / "one.dump").write_bytes(b"x" * 5000)
    os.mkfifo(tmp_path / "pipe")
    one = DumpOutput(str(tmp_path / "one.dump"), clock=clock).measure()
    assert (one.exists, one.size, one.files) == (True, 5000, 1) and one.allocated >= 5000
    assert "neither a file nor a directory" in (DumpOutput(str(tmp_path / "pipe"), clock=clock).measure().note or "")
    assert not DumpOutput(str(tmp_path / "absent"), clock=clock).measure().exists
