"""The same seconds seen by vmstat, iostat, free and df: they must agree on every number both have.

We read when the tool prints its first report, and again when it prints the next: the same two seconds, but for the
moment until its line has come. Hence the tolerances, which are far below what a wrong column or unit would give.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dba_console.watch.probes.host.file_systems import HostContext, MountProbe
from dba_console.watch.probes.host.probe import HostProbe
from dba_console.watch.samples.host import Cpu, Disk, MemInfo, Mounts, VmStat
from tests.host.load import steady_io
from tests.requirements import lacking

pytestmark = pytest.mark.alone
"""What others do between our look and the tool's, and their mounts that come and go, would be differences."""
NAMES = ["host.cpu", "host.memory", "host.vmstat", "host.disks"]
Readings = dict[str, Any]
Reading = tuple[Readings, int]
Tool = Callable[[str], str]


def read(probe: HostProbe) -> Reading:
    """All readings by name, and when."""
    parts = probe.read(NAMES, HostContext())
    assert {part.status for part in parts} == {"ok"}
    return {part.name: part.decode() for part in parts}, parts[-1].at_us


def run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=30).stdout


def read_with_tool(
    probe: HostProbe, is_report: Callable[[str], bool], *command: str
) -> tuple[list[Reading], list[str]]:
    """Our readings at the tool's first two reports, each taken when its line came, and all lines it printed."""
    ours, lines = [], []
    environment = {**os.environ, "LC_ALL": "C"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if is_report(line):
                ours.append(read(probe))
            lines.append(line)
    assert len(ours) == 2, lines
    return ours, lines


@pytest.fixture(scope="module")
def device(disk_directory: Path) -> Iterator[str]:
    """The disk under a steady load while the tools read it."""
    mounts = MountProbe()
    reading: Mounts = mounts.read(HostContext(paths={"session": str(disk_directory)})).decode()
    mounts.close()
    disk = next(mount.device for mount in reading.mounts if "session" in mount.holds)
    if disk is None:
        lacking(f"{disk_directory} lies on no block device")
    with steady_io(disk_directory / "file"):
        yield disk


def test_vmstat_shows_the_same_values(device: str, require_tool: Tool) -> None:
    vmstat = require_tool("vmstat")
    probe = HostProbe()
    [(before, began), (after, ended)], lines = read_with_tool(
        probe, lambda line: line.split()[0].isdigit(), vmstat, "2", "2"
    )
    probe.close()
    theirs = dict(zip(lines[1].split(), map(int, lines[-1].split()), strict=True))
    seconds = (ended - began) / 1e6
    cpu, old_cpu = after["host.cpu"], before["host.cpu"]
    vm, old_vm = after["host.vmstat"], before["host.vmstat"]
    assert isinstance(cpu, Cpu)
    assert isinstance(vm, VmStat)
    assert (vm.pgpgout_kb - old_vm.pgpgout_kb) / seconds == pytest.approx(theirs["bo"], rel=0.25, abs=500)
    assert (vm.pgpgin_kb - old_vm.pgpgin_kb) / seconds == pytest.approx(theirs["bi"], rel=0.25, abs=500)
    assert (vm.pswpin - old_vm.pswpin) / seconds == pytest.approx(theirs["si"], abs=50)
    assert (cpu.context_switches - old_cpu.context_switches) / seconds == pytest.approx(theirs["cs"], rel=0.3, abs=500)
    for column, share in cpu_shares(old_cpu, cpu).items():
        assert share == pytest.approx(theirs[column], abs=8), column


def cpu_shares(old: Cpu, new: Cpu) -> dict[str, float]:
    """Percent of all CPU time, under vmstat's headings."""
    fields = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    spent = {name: getattr(new, name) - getattr(old, name) for name in fields}
    total = sum(spent.values())
    groups = {"us": ("user", "nice"), "sy": ("system", "irq", "softirq"), "id": ("idle",), "wa": ("iowait",)}
    return {column: 100 * sum(spent[name] for name in names) / total for column, names in groups.items()}


def test_iostat_shows_the_same_values(device: str, require_tool: Tool) -> None:
    iostat = require_tool("iostat")
    probe = HostProbe()
    [(before, began), (after, ended)], lines = read_with_tool(
        probe, lambda line: line.startswith(device), iostat, "-x", "-d", device, "2", "2"
    )
    probe.close()
    columns = next(line.split() for line in lines if line.startswith("Device"))
    last = next(line.split() for line in reversed(lines) if line.startswith(device))
    theirs = dict(zip(columns[1:], map(float, last[1:]), strict=True))
    old, new = disk(before, device), disk(after, device)
    milliseconds = (ended - began) / 1e3
    reads, writes = new.reads - old.reads, new.writes - old.writes
    assert reads > 50, "the load was not seen"
    assert reads / milliseconds * 1e3 == pytest.approx(theirs["r/s"], rel=0.2)
    assert writes / milliseconds * 1e3 == pytest.approx(theirs["w/s"], rel=0.2)
    assert (new.read_sectors - old.read_sectors) / 2 / milliseconds * 1e3 == pytest.approx(theirs["rkB/s"], rel=0.25)
    assert (new.written_sectors - old.written_sectors) / 2 / milliseconds * 1e3 == pytest.approx(
        theirs["wkB/s"], rel=0.25, abs=500
    )
    assert (new.read_ms - old.read_ms) / reads == pytest.approx(theirs["r_await"], rel=0.3, abs=0.3)
    assert (new.write_ms - old.write_ms) / writes == pytest.approx(theirs["w_await"], rel=0.3, abs=0.3)
    assert (new.io_ms - old.io_ms) / milliseconds * 100 == pytest.approx(theirs["%util"], rel=0.2, abs=5)
    assert (new.weighted_ms - old.weighted_ms) / milliseconds == pytest.approx(theirs["aqu-sz"], rel=0.3, abs=0.2)


def disk(readings: Readings, name: str) -> Disk:
    found: Disk = next(disk for disk in readings["host.disks"].devices if disk.name == name)
    return found


def test_the_same_devices_are_shown_as_in_iostat_without_partitions(device: str, require_tool: Tool) -> None:
    report = json.loads(run(require_tool("iostat"), "-d", "-o", "JSON"))
    theirs = {row["disk_device"]: row for row in report["sysstat"]["hosts"][0]["statistics"][0]["disk"]}
    probe = HostProbe()
    ours = {found.name for found in read(probe)[0]["host.disks"].devices}
    probe.close()
    used = {name for name, row in theirs.items() if row["kB_read"] or row["kB_wrtn"]}
    assert used <= ours <= theirs.keys()


def test_free_shows_the_same_values(require_tool: Tool) -> None:
    free = require_tool("free")
    probe = HostProbe()
    before: MemInfo = read(probe)[0]["host.memory"]
    lines = run(free, "-b", "-w").splitlines()
    after: MemInfo = read(probe)[0]["host.memory"]
    probe.close()
    theirs = dict(zip(lines[0].split(), map(int, lines[1].split()[1:]), strict=True))
    swap = list(map(int, lines[2].split()[1:]))
    assert after.total == theirs["total"]
    assert [after.swap_total, after.swap_free] == [swap[0], swap[2]]
    assert_between(before.free, theirs["free"], after.free)
    assert_between(before.available, theirs["available"], after.available)
    assert_between(before.buffers, theirs["buffers"], after.buffers)
    assert_between(before.shmem, theirs["shared"], after.shmem)
    assert before.slab_reclaimable is not None
    assert after.slab_reclaimable is not None
    # free counts reclaimable slab as cache (procps 3.3.10 and later).
    assert_between(before.cached + before.slab_reclaimable, theirs["cache"], after.cached + after.slab_reclaimable)


def assert_between(before: int | None, theirs: int, after: int | None, *, slack: int = 128 << 20) -> None:
    """The tool's value lies between ours, but for what others allocate and free meanwhile."""
    assert before is not None
    assert after is not None
    assert min(before, after) - slack <= theirs <= max(before, after) + slack


def test_df_shows_the_same_values(require_tool: Tool) -> None:
    df = require_tool("df")
    mounts = MountProbe()
    before = {mount.path: mount for mount in mounts.read(HostContext()).decode().mounts}
    text = run(df, "-B1", "--output=size,used,avail,itotal,iavail,target", *before)
    after = {mount.path: mount for mount in mounts.read(HostContext()).decode().mounts}
    mounts.close()
    rows = [line.split(None, 5) for line in text.splitlines()[1:]]
    assert {row[5] for row in rows} == set(before)
    for size, used, available, inodes, inodes_free, path in rows:
        old, new = before[path], after[path]
        assert new.size == int(size)
        assert_between(old.used, int(used), new.used)
        assert_between(old.available, int(available), new.available)
        if inodes.isdigit() and int(inodes):
            assert new.inodes == int(inodes)
            assert_between(old.inodes_free, int(inodes_free), new.inodes_free, slack=5000)
