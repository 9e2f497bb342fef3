"""Which block devices count, and what they stand on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dba_console.watch.probes.host.kernel_counters import DiskReader
from dba_console.watch.samples.host import Disk
from tests.unit.watch.probes.proc_trees import write_tree

Devices = Callable[[str], dict[str, Disk]]

OLD = " 8 0 sda 100 1 800 50 200 2 1600 70 0 90 120\n"
"""Kernel 3.10: no discards, no flushes."""
NEW = " 8 0 sda 100 1 800 50 200 2 1600 70 3 90 120 5 6 40 7 8 9\n"


def sys_tree(base: Path) -> str:
    """sda with a partition; dm-0 on that partition; md0 on sda and sdb; an nvme with a partition; a loop device."""
    block = base / "block"
    for name, partition in (("sda", "sda1"), ("sdb", None), ("nvme0n1", "nvme0n1p1"), ("dm-0", None), ("md0", None)):
        place = base / "devices" / name
        place.mkdir(parents=True)
        block.mkdir(exist_ok=True)
        (block / name).symlink_to(place)
        link(base, name, place)
        if partition:
            write_tree(place, {f"{partition}/partition": "1\n"})
            link(base, partition, place / partition)
    for upper, lower in (("dm-0", ["sda1"]), ("md0", ["sda", "sdb"])):
        for name in lower:
            write_tree(base / "devices" / upper, {f"slaves/{name}/dev": ""})
    write_tree(base / "devices/loop0", {"loop/backing_file": "/srv/image file\n"})
    (block / "loop0").symlink_to(base / "devices/loop0")
    (base / "dev/block").mkdir(parents=True)
    (base / "dev/block/8:1").symlink_to(base / "devices/sda/sda1")
    return str(base)


def link(base: Path, name: str, directory: Path) -> None:
    (base / "class/block").mkdir(parents=True, exist_ok=True)
    (base / "class/block" / name).symlink_to(directory)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Devices:
    """Reads the devices of such a /proc/diskstats."""
    mountinfo = "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 30 0:9 / /mnt rw - nfs x:/y rw\n"
    proc = write_tree(tmp_path / "proc", {"self/mountinfo": mountinfo})
    reader = DiskReader(proc, sys_tree(tmp_path / "sys"))
    monkeypatch.setattr(psutil, "PROCFS_PATH", proc)

    def read(diskstats: str) -> dict[str, Disk]:
        write_tree(tmp_path / "proc", {"diskstats": diskstats})
        return {disk.name: disk for disk in reader.read(diskstats.encode(), 0).devices}

    return read


def test_a_partition_is_not_counted_in_addition_to_its_disk(devices: Devices) -> None:
    text = NEW + " 8 1 sda1 99 1 792 49 199 2 1592 69 3 89 118 5 6 40 7 8 9\n"
    assert list(devices(text)) == ["sda"]


def test_a_device_without_any_io_is_omitted(devices: Devices) -> None:
    text = NEW + " 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n 1 0 ram0 0 0 0 0 0 0 0 0 0 0 0\n"
    assert list(devices(text)) == ["sda"]


def test_a_device_is_shown_until_it_is_removed(devices: Devices) -> None:
    added = NEW + NEW.replace("8 0 sda", "8 16 sdb")
    assert [list(devices(text)) for text in (NEW, added, added, NEW)] == [
        ["sda"],
        ["sda", "sdb"],
        ["sda", "sdb"],
        ["sda"],
    ]


def test_every_column_is_read_into_its_field(devices: Devices) -> None:
    disk = devices(NEW)["sda"]
    assert (disk.reads, disk.read_sectors, disk.read_ms) == (100, 800, 50)
    assert (disk.writes, disk.written_sectors, disk.write_ms) == (200, 1600, 70)
    assert (disk.in_flight, disk.io_ms, disk.weighted_ms) == (3, 90, 120)
    assert (disk.discards, disk.discarded_sectors, disk.discard_ms) == (5, 40, 7)
    assert (disk.flushes, disk.flush_ms) == (8, 9)


def test_an_old_kernel_leaves_discards_and_flushes_unknown(devices: Devices) -> None:
    disk = devices(OLD)["sda"]
    assert disk.io_ms == 90
    assert disk.discards is None
    assert disk.flushes is None


def test_a_mapped_device_names_the_whole_disks_under_it(devices: Devices) -> None:
    text = NEW.replace("8 0 sda", "253 0 dm-0") + NEW.replace("8 0 sda", "9 0 md0")
    found = devices(text)
    assert found["dm-0"].underlying == ["sda"]
    assert found["md0"].underlying == ["sda", "sdb"]


def test_a_loop_device_is_assigned_to_the_disk_of_its_file(devices: Devices) -> None:
    assert devices(NEW.replace("8 0 sda", "7 0 loop0"))["loop0"].underlying == ["sda"]


def test_without_sys_partitions_are_recognised_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(NEW.replace("sda", name) for name in ("sda", "sda1", "nvme0n1", "nvme0n1p2", "dm-3", "vdb2"))
    monkeypatch.setattr(psutil, "PROCFS_PATH", write_tree(tmp_path / "proc", {"diskstats": text}))
    found = DiskReader("/nonexistent", str(tmp_path)).read(text.encode(), 0)
    assert [disk.name for disk in found.devices] == ["sda", "nvme0n1", "dm-3"]
