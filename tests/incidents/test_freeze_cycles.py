"""A frozen file system thaws after its time, on request, and when the process that froze it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.incidents.reclaim_stall import DROP_CACHES, FreezeCycles, ReclaimMethod, choose_method
from tests.background import wait_until
from tests.requirements import lacking

pytestmark = pytest.mark.root
CACHED = 48 * MIB
_KILLED = """
import sys
from dba_console.demo.incidents.reclaim_stall import FreezeCycles
from dba_console.demo.incidents.loop_disk import MIB, loop_disk
from dba_console.demo.incidents.reclaim_stall import choose_method
with loop_disk(32 * MIB, stacked=True) as disk:
    way = choose_method()
    bouts = FreezeCycles(disk.lower_path, disk.host_directory / "cached", 8 * MIB, way, frozen_s=60)
    bouts.wait_filled()
    bouts.start_freezing()
    print(disk.host_directory, way.group, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def disk(disk_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopDisk]:
    """On a real disk: what is read from memory is not cached."""
    disk_directory.chmod(0o711)  # the server's user passes through
    monkeypatch.setattr(tempfile, "tempdir", str(disk_directory))
    with loop_disk(32 * MIB, stacked=True) as made:
        yield made


@pytest.fixture
def reclaim_method() -> ReclaimMethod:
    found = choose_method()
    if found == DROP_CACHES:
        lacking("no memory control group can be made here")  # and the host's cache is not dropped for a test
    return found


def freeze_cycles_on(disk: LoopDisk, reclaim_method: ReclaimMethod, frozen_s: int, between_s: int = 1) -> FreezeCycles:
    assert disk.lower_path is not None
    made = FreezeCycles(
        disk.lower_path, disk.host_directory / "cached", CACHED, reclaim_method, frozen_s=frozen_s, between_s=between_s
    )
    made.wait_filled()
    return made


def write_to(directory: Path) -> threading.Thread:
    """A write that ends when the file system takes it."""
    thread = threading.Thread(target=lambda: (directory / "probe").write_bytes(b"x"), daemon=True)
    thread.start()
    return thread


def blocked_write(directory: Path) -> threading.Thread:
    """The first write that does not end at once: the file system is frozen."""
    return wait_until(lambda: is_running(write_to(directory)), 60, what="a frozen file system")


def is_running(thread: threading.Thread) -> threading.Thread | None:
    thread.join(0.3)
    return thread if thread.is_alive() else None


def charged(reclaim_method: ReclaimMethod) -> int:
    """Bytes the control group holds, page cache for the most part."""
    assert reclaim_method.group is not None
    name = "memory.usage_in_bytes" if reclaim_method.limit == "memory.limit_in_bytes" else "memory.current"
    return int((reclaim_method.group / name).read_text())


def test_a_freeze_cycle_freezes_and_thaws_automatically(disk: LoopDisk, reclaim_method: ReclaimMethod) -> None:
    bouts = freeze_cycles_on(disk, reclaim_method, frozen_s=2)
    try:
        assert disk.lower_path is not None
        bouts.start_freezing()
        write = blocked_write(disk.lower_path)
        write.join(60)
        assert not write.is_alive()
    finally:
        bouts.stop()


def test_a_freeze_cycle_reclaims_what_was_cached(disk: LoopDisk, reclaim_method: ReclaimMethod) -> None:
    bouts = freeze_cycles_on(disk, reclaim_method, frozen_s=2, between_s=60)
    try:
        assert charged(reclaim_method) > 0.9 * CACHED
        bouts.start_freezing()
        wait_until(lambda: charged(reclaim_method) < 0.2 * CACHED, 60, what="the page cache reclaimed")
    finally:
        bouts.stop()


def test_stopping_thaws_at_once_and_leaves_no_group(disk: LoopDisk, reclaim_method: ReclaimMethod) -> None:
    bouts = freeze_cycles_on(disk, reclaim_method, frozen_s=600)
    assert disk.lower_path is not None and reclaim_method.group is not None
    bouts.start_freezing()
    write = blocked_write(disk.lower_path)
    bouts.stop()
    write.join(60)
    assert not write.is_alive()
    assert not reclaim_method.group.exists()


def test_killing_the_holder_thaws_unmounts_and_leaves_no_group() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        beside, group = holder.stdout.readline().split()
        blocked_write(Path(beside) / "below")
        holder.send_signal(signal.SIGKILL)
    wait_until(lambda: not os.path.exists(beside), 60, what="the end of the disk")
    wait_until(lambda: not os.path.exists(group), 60, what="the end of the control group")
    assert beside not in Path("/proc/self/mountinfo").read_text()
