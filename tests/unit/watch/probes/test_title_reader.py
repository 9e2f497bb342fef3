"""A process whose title cannot be read hides no other process."""

from __future__ import annotations

import threading
from pathlib import Path

from dba_console.core.clock import SYSTEM
from dba_console.watch.probes.host.kernel_files import read_once
from dba_console.watch.probes.host.processes import TitleReader
from tests.background import wait_until
from tests.clocks import HeldClock
from tests.unit.watch.probes.proc_trees import stat_line, write_tree


def tree(tmp_path: Path, titles: dict[int, bytes]) -> str:
    files: dict[str, str | bytes] = {f"{pid}/cmdline": title for pid, title in titles.items()}
    files |= {f"{pid}/stat": stat_line(pid, parent=10, start=pid * 2) for pid in titles}
    return write_tree(tmp_path, files)


def test_titles_are_read_with_the_start_of_their_process(tmp_path: Path) -> None:
    proc = tree(tmp_path, {11: b"postgres: c1: checkpointer \0\0\0", 12: b"postgres: c1: app shop [local] idle\0"})
    reading = TitleReader(proc, SYSTEM).read(10, [12, 11])
    assert [(row.pid, row.kind, row.start_ticks) for row in reading.rows] == [
        (11, "checkpointer", 22),
        (12, "client backend", 24),
    ]
    assert reading.unreadable == 0


class StallClock(HeldClock):
    """Stands still until a read hangs, whenever that is; then the time of this try is over."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()
        self._asked = 0

    def mono_us(self) -> int:
        self._asked += 1
        if self._asked == 3:  # begun, the try begun, how long to wait for it
            assert self.hangs.wait(60)
            self.advance(21)
        return super().mono_us()


def test_a_process_that_holds_its_mmap_lock_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    proc = tree(tmp_path, dict.fromkeys((11, 12, 13), b"postgres: app shop [local] idle\x00"))
    clock, let_go = StallClock(), threading.Event()

    def read(path: str, size: int) -> bytes:
        if "/12/" in path:
            clock.hangs.set()
            let_go.wait(60)
        return read_once(path, size)

    reader = TitleReader(proc, clock, read=read, deadline_us=60_000_000)
    reading = reader.read(10, [11, 12, 13])
    assert [row.pid for row in reading.rows] == [11, 13]
    assert reading.unreadable == 1
    assert reader.stuck
    again = reader.read(10, [11, 12, 13])
    assert [row.pid for row in again.rows] == [11, 13]
    let_go.set()
    wait_until(lambda: not reader.stuck, what="the lane's return")
    reader.close()


def test_a_process_that_ended_meanwhile_is_not_reported_as_unreadable(tmp_path: Path) -> None:
    proc = tree(tmp_path, {11: b"postgres: app shop [local] idle\0"})
    assert TitleReader(proc, SYSTEM).read(10, [11, 12]).unreadable == 0


def test_a_title_that_is_not_utf8_causes_no_error(tmp_path: Path) -> None:
    proc = tree(tmp_path, {11: b"postgres: caf\xe9 shop [local] idle\0"})
    assert TitleReader(proc, SYSTEM).read(10, [11]).rows[0].user == "caf\\xe9"
