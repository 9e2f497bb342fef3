"""Which processes are read when, and what is not known about them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dba_console.watch.probes.host.postmasters import PostmasterChildren
from dba_console.watch.probes.host.processes import IO_DENIED, MAX_OPEN_PROCESSES, TURN_TICKS, ProcessReader
from dba_console.watch.samples.host import Process, Processes
from tests.unit.watch.probes.proc_trees import io_text, stat_line, write_tree

POSTMASTER = 10


def process(
    tmp_path: Path, pid: int, *, parent: int = POSTMASTER, state: str = "S", user: int = 0, start: int = 5
) -> None:
    text = stat_line(pid, parent=parent, state=state, user=user, start=start, rss=3, blkio=7)
    write_tree(tmp_path, {f"{pid}/stat": text, f"{pid}/io": io_text(pid, pid * 2)})


def server(tmp_path: Path, children: list[int]) -> str:
    """A postmaster with these children, as a kernel with a list of children shows it."""
    process(tmp_path, POSTMASTER, parent=1)
    for pid in children:
        process(tmp_path, pid)
    list_children(tmp_path, children)
    return str(tmp_path)


def list_children(tmp_path: Path, children: list[int]) -> None:
    write_tree(tmp_path, {f"{POSTMASTER}/task/{POSTMASTER}/children": " ".join(map(str, children)) + " "})


def pids(reading: Processes) -> list[int]:
    return [row.pid for row in reading.rows]


def row(reading: Processes, pid: int) -> Process:
    return next(row for row in reading.rows if row.pid == pid)


def test_the_first_reading_contains_every_process(tmp_path: Path) -> None:
    reader = ProcessReader(server(tmp_path, [20, 21]), POSTMASTER, 4096)
    reading, note = reader.read((), 1)
    assert pids(reading) == [POSTMASTER, 20, 21]
    assert reading.total == 2
    assert reading.states == {"S": 3}
    assert row(reading, 20) == Process(20, "S", 5, 0, 0, 3 * 4096, 20, 40, 7)
    assert note is None
    reader.close()


def test_idle_processes_are_read_in_turn_and_all_within_the_cycle(tmp_path: Path) -> None:
    children = list(range(100, 100 + 3 * TURN_TICKS))
    reader = ProcessReader(server(tmp_path, children), POSTMASTER, 4096)
    reader.read((), 1)
    reader.read((), 1)
    seen: set[int] = set()
    for _ in range(TURN_TICKS):
        reading, _ = reader.read((), 1)
        assert len(reading.rows) == 1 + 3
        assert reading.total == len(children)
        seen.update(pids(reading))
    assert seen == {POSTMASTER, *children}
    reader.close()


def test_active_backends_are_read_every_time(tmp_path: Path) -> None:
    reader = ProcessReader(server(tmp_path, list(range(100, 200))), POSTMASTER, 4096)
    for _ in range(TURN_TICKS):
        reading, _ = reader.read(frozenset((150, 151, 999)), 1)
        assert {150, 151} <= set(pids(reading))
    reader.close()


def test_a_process_that_uses_cpu_is_reread_at_once_without_being_shown_as_active(tmp_path: Path) -> None:
    reader = ProcessReader(server(tmp_path, [100]), POSTMASTER, 4096)
    for used in range(1, TURN_TICKS):
        process(tmp_path, 100, user=used)
        reading, _ = reader.read((), 1)
        assert row(reading, 100).user_ticks == used
    reader.close()


def test_descriptors_are_kept_open_for_a_limited_number_of_processes_and_closed(tmp_path: Path) -> None:
    children = list(range(100, 100 + 2 * MAX_OPEN_PROCESSES))
    reader = ProcessReader(server(tmp_path, children), POSTMASTER, 4096)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        reader.read(children, 1)
    assert len(os.listdir("/proc/self/fd")) - before <= 2 * MAX_OPEN_PROCESSES + 1
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_ended_process_has_no_row_and_leaves_nothing_open(tmp_path: Path) -> None:
    reader = ProcessReader(server(tmp_path, [20, 21]), POSTMASTER, 4096)
    for _ in range(3):
        reader.read((20, 21), 1)
    held = len(os.listdir("/proc/self/fd"))
    shutil.rmtree(tmp_path / "21")
    list_children(tmp_path, [20])
    reading, _ = reader.read((20, 21), 1)
    assert pids(reading) == [POSTMASTER, 20]
    assert reading.total == 1
    assert len(os.listdir("/proc/self/fd")) == held - 2
    reader.close()


def test_io_waits_are_unknown_if_the_kernel_does_not_account_them(tmp_path: Path) -> None:
    proc = server(tmp_path, [20])
    reader = ProcessReader(proc, POSTMASTER, 4096)
    assert row(reader.read((), 0)[0], 20).blkio_ticks is None
    assert row(reader.read((), 1)[0], 20).blkio_ticks == 7
    reader.close()


def test_without_the_right_to_read_io_the_rest_is_known_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = server(tmp_path, [20])
    opened = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith("/io"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    reader = ProcessReader(proc, POSTMASTER, 4096)
    reading, note = reader.read((), 1)
    assert row(reading, 20).read_bytes is None
    assert row(reading, 20).rss == 3 * 4096
    assert note == IO_DENIED
    reader.close()


def test_a_child_missing_in_the_list_of_the_kernel_is_still_counted(tmp_path: Path) -> None:
    children = PostmasterChildren(server(tmp_path, [20, 21, 22]), POSTMASTER)
    assert children.read() == {20, 21, 22}
    list_children(tmp_path, [20, 22])
    assert children.read() == {20, 21, 22}
    shutil.rmtree(tmp_path / "21")
    assert children.read() == {20, 22}


def test_a_kernel_without_a_list_of_children_is_scanned(tmp_path: Path) -> None:
    for pid in (20, 21):
        process(tmp_path, pid)
    process(tmp_path, POSTMASTER, parent=1)
    process(tmp_path, 30, parent=20)
    children = PostmasterChildren(str(tmp_path), POSTMASTER)
    assert children.read() == {20, 21}
    process(tmp_path, 22)
    shutil.rmtree(tmp_path / "20")
    assert children.read() == {21, 22}


@pytest.mark.parametrize("listed", [True, False])
def test_an_ended_postmaster_is_not_a_server_without_connections(tmp_path: Path, listed: bool) -> None:
    proc = server(tmp_path, [])
    if not listed:
        shutil.rmtree(tmp_path / f"{POSTMASTER}/task")
    children = PostmasterChildren(proc, POSTMASTER)
    assert children.read() == frozenset()
    (tmp_path / f"{POSTMASTER}/stat").unlink()
    shutil.rmtree(tmp_path / str(POSTMASTER))
    with pytest.raises(ProcessLookupError):
        children.read()
