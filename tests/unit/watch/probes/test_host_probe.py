"""The probe as a whole: one part failing hides no other, and every failure says what would help."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from dba_console.watch.probes.host.file_systems import HostContext
from dba_console.watch.probes.host.kernel_counters import read_settings
from dba_console.watch.probes.host.probe import NO_POSTMASTER, NO_PSI, HostProbe
from dba_console.watch.probes.host.processes import TURN_TICKS
from dba_console.watch.samples.host import Cpu, HostSettings, NumaNode
from dba_console.watch.samples.sample import PARTS
from tests.unit.watch.probes.proc_trees import KERNEL_6_1, MEMINFO_3_10, STAT, stat_line, write_tree

NAMES = [name for name in PARTS if name.startswith("host.") and name != "host.mounts"]


@pytest.fixture
def old_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel without pressure files and without a disk."""
    files = {"stat": STAT, "meminfo": MEMINFO_3_10, "vmstat": KERNEL_6_1, "diskstats": ""}
    proc = write_tree(tmp_path / "proc", files)
    monkeypatch.setattr(psutil, "PROCFS_PATH", proc)
    return proc


def statuses(probe: HostProbe, context: HostContext) -> dict[str, tuple[str, str | None]]:
    return {part.name: (part.status, part.note) for part in probe.read(NAMES, context)}


def test_every_part_is_answered_in_the_requested_order(old_kernel: str) -> None:
    probe = HostProbe(proc=old_kernel, sys="/nonexistent")
    assert [part.name for part in probe.read(NAMES, HostContext())] == NAMES
    probe.close()


def test_a_missing_file_is_the_status_of_its_part_and_hides_no_other(old_kernel: str) -> None:
    os.unlink(f"{old_kernel}/meminfo")
    found = statuses(HostProbe(proc=old_kernel, sys="/nonexistent"), HostContext())
    assert found["host.memory"][0] == "unsupported"
    assert found["host.cpu"] == ("ok", None)
    assert found["host.vmstat"] == ("ok", None)


def test_a_kernel_without_pressure_files_is_reported_with_the_remedy(old_kernel: str) -> None:
    assert statuses(HostProbe(proc=old_kernel, sys="/"), HostContext())["host.pressure"] == ("unsupported", NO_PSI)


def test_an_invalid_file_is_a_clear_error(old_kernel: str) -> None:
    write_tree(Path(old_kernel), {"stat": "cpu what\n"})
    status, note = statuses(HostProbe(proc=old_kernel, sys="/"), HostContext())["host.cpu"]
    assert status == "error"
    assert note is not None
    assert "/proc/stat" in note


def test_a_part_returns_when_its_file_does(old_kernel: str) -> None:
    probe = HostProbe(proc=old_kernel, sys="/")
    os.rename(f"{old_kernel}/stat", f"{old_kernel}/away")
    assert statuses(probe, HostContext())["host.cpu"][0] == "unsupported"
    os.rename(f"{old_kernel}/away", f"{old_kernel}/stat")
    assert statuses(probe, HostContext())["host.cpu"][0] == "ok"
    probe.close()


def test_a_reading_decodes_to_its_struct(old_kernel: str) -> None:
    probe = HostProbe(proc=old_kernel, sys="/")
    [part] = probe.read(["host.cpu"], HostContext())
    assert isinstance(part.decode(), Cpu)
    probe.close()


def test_without_a_postmaster_the_backends_are_unknown_with_the_reason(old_kernel: str) -> None:
    found = statuses(HostProbe(proc=old_kernel, sys="/"), HostContext())
    assert found["host.processes"] == ("unsupported", NO_POSTMASTER)
    assert found["host.titles"] == ("unsupported", NO_POSTMASTER)
    assert found["host.control"][0] == "unsupported"


def test_an_ended_postmaster_is_an_error(old_kernel: str) -> None:
    status, note = statuses(HostProbe(proc=old_kernel, sys="/"), HostContext(postmaster_pid=77))["host.processes"]
    assert (status, note) == ("error", "the postmaster, process 77, has ended")


def test_without_a_connection_titles_show_the_active_sessions(old_kernel: str) -> None:
    children = range(100, 200)
    files: dict[str, str | bytes] = {"10/stat": stat_line(10), "10/task/10/children": " ".join(map(str, children))}
    for pid in children:
        files[f"{pid}/stat"] = stat_line(pid, parent=10)
        files[f"{pid}/cmdline"] = f"postgres: app shop [local] {'SELECT' if pid == 150 else 'idle'}"
    probe = HostProbe(proc=write_tree(Path(old_kernel), files), sys="/")
    for _ in range(TURN_TICKS):
        _, part = probe.read(["host.titles", "host.processes"], HostContext(postmaster_pid=10))
        assert 150 in {row.pid for row in part.decode().rows}
    probe.close()


def test_nothing_of_this_host_is_shown_for_a_remote_server() -> None:
    context = HostContext(watched=False, note="the server runs on db9")
    for part in HostProbe().read(NAMES, context):
        assert (part.status, part.note, part.reading) == ("unsupported", "the server runs on db9", None)


def test_an_unknown_name_is_an_error_and_not_an_exception(old_kernel: str) -> None:
    [part] = HostProbe(proc=old_kernel, sys="/").read(["host.nothing"], HostContext())
    assert part.status == "error"


def settings(tmp_path: Path, sys: dict[str, str | bytes]) -> HostSettings:
    proc = write_tree(tmp_path / "proc", {"sys/vm/zone_reclaim_mode": "1\n", "sys/vm/swappiness": "60\n"})
    return read_settings(proc, write_tree(tmp_path / "sys", sys))


def test_a_setting_missing_in_this_kernel_is_unknown(tmp_path: Path) -> None:
    found = settings(tmp_path, {})
    assert (found.zone_reclaim_mode, found.swappiness) == (1, 60)
    assert (found.watermark_boost_factor, found.task_delayacct, found.thp) == (None, None, None)
    assert found.numa == []


@pytest.mark.parametrize("name", ["transparent_hugepage", "redhat_transparent_hugepage"])
def test_huge_pages_are_read_from_the_word_in_brackets(tmp_path: Path, name: str) -> None:
    base = f"kernel/mm/{name}"
    files: dict[str, str | bytes] = {
        f"{base}/enabled": "[always] madvise never\n",
        f"{base}/defrag": "always defer defer+madvise [madvise] never\n",
    }
    found = settings(tmp_path, files)
    assert (found.thp, found.thp_defrag) == ("always", "madvise")


def test_numa_nodes_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for node in (0, 2, 10):
        base = f"devices/system/node/node{node}"
        files[f"{base}/meminfo"] = (
            f"Node {node} MemTotal:       {node + 1} kB\nNode {node} MemFree:  1 kB\nNode {node} FilePages: 7 kB\n"
        )
        files[f"{base}/numastat"] = f"numa_hit 5\nnuma_miss {node}\nnuma_foreign 3\n"
    found = settings(tmp_path, files).numa
    assert [node.node for node in found] == [0, 2, 10]
    assert found[2] == NumaNode(10, 11 * 1024, 1024, 7 * 1024, 10, 3)
