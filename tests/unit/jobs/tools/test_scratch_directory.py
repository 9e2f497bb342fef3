"""The scratch directory of a sweep: gone afterwards, and what a killed one left with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dba_console.jobs.tools.scratch_directory import (
    TrialOutput,
    directory_name,
    mount_of,
    remove_leftovers,
    scratch_directory,
)
from dba_console.watch.probes.host.kernel_files import read_stat
from tests.requirements import lacking

MIB = 1 << 20


def test_it_exists_as_long_as_it_is_needed(tmp_path: Path) -> None:
    with scratch_directory(tmp_path) as place:
        (place / "1.dat").write_bytes(b"x")
        assert [place] == list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_whatever_happens(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_directory(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_one_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.run(["true"], check=True)
    assert ended.returncode == 0
    own = read_stat("/proc", os.getpid())
    assert own is not None
    left = tmp_path / directory_name(os.getpid(), own.start_ticks + 1)  # a process id given anew
    runs = tmp_path / directory_name(os.getpid(), own.start_ticks)
    elsewhere = tmp_path / f"{left.name[:-8]}00000000"  # of another host that shares this place
    others = [tmp_path / "dump", tmp_path / ".dba-console-sweep-x", elsewhere]
    for directory in (left, runs, *others):
        directory.mkdir()
        (directory / "1.dat").write_bytes(b"x")
    link = tmp_path / directory_name(1, 1)
    link.symlink_to(others[0])
    assert remove_leftovers(tmp_path) == [left]
    assert set(tmp_path.iterdir()) == {runs, link, *others}
    assert (others[0] / "1.dat").exists()


def test_with_nowhere_each_file_keeps_its_size_and_frees_its_space() -> None:
    with scratch_directory(in_memory()) as place:
        path = place / "3000.dat.gz"
        path.write_bytes(os.urandom(4 * MIB))
        (place / "toc.dat").write_bytes(os.urandom(MIB))
        output = TrialOutput(place, discard=True)
        output.measure()
        assert output.size == 5 * MIB
        assert path.stat().st_size == 4 * MIB
        assert path.stat().st_blocks * 512 < MIB // 4
        assert (place / "toc.dat").stat().st_blocks * 512 >= MIB
        with path.open("ab") as file:
            file.write(os.urandom(MIB))
        output.measure()
        assert (output.size, path.stat().st_size) == (6 * MIB, 5 * MIB)


def test_the_space_of_kept_files_is_not_freed(tmp_path: Path) -> None:
    (tmp_path / "1.dat").write_bytes(os.urandom(MIB))
    output = TrialOutput(tmp_path, discard=False)
    output.measure()
    assert output.size == MIB and output.allocated >= MIB


def test_the_file_system_of_a_directory_is_determined() -> None:
    found = mount_of("/proc/self")
    assert found is not None and found.fstype == "proc"


def in_memory() -> Path:
    """Some megabytes are enough here."""
    place = Path("/dev/shm")
    found = mount_of(place) if place.is_dir() else None
    if found is None or found.fstype != "tmpfs":
        lacking("there is no memory mounted at /dev/shm")
    return place
