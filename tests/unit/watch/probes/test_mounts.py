"""A mount that hangs hides no other, and comes back when it answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dba_console.watch.probes.deadline_lane import REPLACEMENTS
from dba_console.watch.probes.host.file_systems import NO_DATA, FileSystemSize, HostContext, MountProbe
from dba_console.watch.samples.host import Mount, Mounts
from tests.background import wait_until
from tests.unit.watch.probes.proc_trees import write_tree

DATA, WAL = "/srv/data", "/srv/wal"
"""Mount points of a table made by hand; below /dev, where a test's directory may lie, mounts are passed over."""


class Stall:
    """statvfs that hangs on one path until let go, as the kernel does on a dead server."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.let_go = threading.Event()
        self.calls = 0

    def __call__(self, path: str) -> FileSystemSize:
        if path == self.path:
            self.calls += 1
            self.let_go.wait(60)
        return os.statvfs("/")


def table(data: str, wal: str) -> str:
    return (
        "27 1 8:0 / / rw - ext4 /dev/sda rw\n"
        f"28 27 0:50 / {data} rw - nfs4 nas:/pg rw\n"
        f"29 27 8:32 / {wal} rw - ext4 /dev/sdc rw\n"
    )


@pytest.fixture
def proc(tmp_path: Path) -> str:
    return write_tree(tmp_path / "proc", {"self/mountinfo": table(DATA, WAL)})


@pytest.fixture
def proc_here(tmp_path: Path) -> str:
    """The two mounts are directories of the test, with links in them that are followed."""
    (tmp_path / "data").mkdir()
    return write_tree(tmp_path / "proc", {"self/mountinfo": table(f"{tmp_path}/data", f"{tmp_path}/wal")})


@pytest.fixture
def stall() -> Iterator[Stall]:
    stall = Stall(DATA)
    yield stall
    stall.let_go.set()


def read(probe: MountProbe, context: HostContext) -> Mounts:
    part = probe.read(context)
    assert part.status == "ok", part.note
    reading = part.decode()
    assert isinstance(reading, Mounts)
    return reading


def by_path(reading: Mounts) -> Callable[[str], Mount]:
    return {mount.path: mount for mount in reading.mounts}.__getitem__


def test_a_stuck_mount_is_reported_and_hides_no_other(proc: str, stall: Stall, tmp_path: Path) -> None:
    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=stall, deadline_s=0.05)
    mount = by_path(read(probe, HostContext()))
    stuck = mount(DATA)
    assert stuck.status == "timeout"
    assert stuck.used is None
    assert mount("/").status == "ok"
    assert mount("/").size == os.statvfs("/").f_blocks * os.statvfs("/").f_frsize
    assert probe.stuck == [f"statvfs {DATA}"]
    stall.let_go.set()
    probe.close()


def test_a_mount_that_responds_again_is_read_again(proc: str, stall: Stall, tmp_path: Path) -> None:
    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=stall, deadline_s=0.05)
    read(probe, HostContext())
    stall.let_go.set()
    wait_until(lambda: not probe.stuck, what="the lane's return")
    assert by_path(read(probe, HostContext()))(DATA).status == "ok"
    probe.close()


def test_a_mount_that_stays_unresponsive_uses_a_few_threads_and_not_one_each_time(
    proc: str, stall: Stall, tmp_path: Path
) -> None:
    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=stall, deadline_s=0.01)
    for _ in range(REPLACEMENTS + 3):
        assert by_path(read(probe, HostContext()))(DATA).status == "timeout"
    assert stall.calls == REPLACEMENTS
    stall.let_go.set()
    probe.close()


def test_wal_behind_a_link_is_on_the_mount_of_the_link_target(proc_here: str, tmp_path: Path) -> None:
    (tmp_path / "wal/pg15").mkdir(parents=True)
    (tmp_path / "data/pg_wal").symlink_to(tmp_path / "wal/pg15")
    context = HostContext(paths={"data": f"{tmp_path}/data", "log": "log", "tablespace:fast one": f"{tmp_path}/wal/ts"})
    probe = MountProbe(proc=proc_here, sys=str(tmp_path), statvfs=lambda _: os.statvfs("/"))
    reading = read(probe, context)
    mount = by_path(reading)
    assert mount(f"{tmp_path}/data").holds == ["data", "log", "temp"]
    assert mount(f"{tmp_path}/wal").holds == ["tablespace:fast one", "wal"]
    assert mount("/").holds == []
    assert reading.paths["log"] == f"{tmp_path}/data/log"
    probe.close()


def test_a_role_that_may_not_query_the_data_directory_gets_it_from_the_process(proc_here: str, tmp_path: Path) -> None:
    probe = MountProbe(proc=proc_here, sys=str(tmp_path), statvfs=lambda _: os.statvfs("/"))
    assert read(probe, HostContext(postmaster_pid=77)).note == NO_DATA
    (tmp_path / "proc/77").mkdir()
    (tmp_path / "proc/77/cwd").symlink_to(tmp_path / "data")
    reading = read(probe, HostContext(postmaster_pid=77))
    assert by_path(reading)(f"{tmp_path}/data").holds == ["data", "temp", "wal"]
    assert reading.note is None
    probe.close()


def test_space_reserved_for_root_is_neither_used_nor_available(proc: str, tmp_path: Path) -> None:
    size = os.statvfs_result((4096, 512, 1000, 300, 250, 50, 20, 20, 0, 255))
    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=lambda _: size)
    mount = by_path(read(probe, HostContext()))("/")
    assert (mount.size, mount.used, mount.available) == (1000 * 512, 700 * 512, 250 * 512)
    assert (mount.inodes, mount.inodes_free) == (50, 20)
    probe.close()


def test_a_file_system_without_an_inode_count_leaves_it_unknown(proc: str, tmp_path: Path) -> None:
    size = os.statvfs_result((4096, 4096, 1000, 300, 250, 0, 0, 0, 0, 255))
    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=lambda _: size)
    mount = by_path(read(probe, HostContext()))("/")
    assert (mount.inodes, mount.inodes_free) == (None, None)
    probe.close()


def test_an_error_of_one_mount_is_reported_on_its_row(proc: str, tmp_path: Path) -> None:
    def refuse(path: str) -> FileSystemSize:
        if path == "/":
            return os.statvfs(path)
        raise PermissionError(13, "Permission denied")

    probe = MountProbe(proc=proc, sys=str(tmp_path), statvfs=refuse)
    mount = by_path(read(probe, HostContext()))
    assert mount("/").status == "ok"
    assert (mount(WAL).status, mount(WAL).size) == ("error", None)
    probe.close()


def test_nothing_of_this_host_is_shown_for_a_remote_server() -> None:
    part = MountProbe().read(HostContext(watched=False, note="the server runs on db9"))
    assert (part.status, part.note, part.reading) == ("unsupported", "the server runs on db9", None)
