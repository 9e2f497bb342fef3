"""CPU, memory, pressure and PID/stat as several kernels write them."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from dba_console.watch.probes.host.kernel_counters import CpuReader, parse_stalls, read_memory
from dba_console.watch.probes.host.kernel_files import parse_stat
from tests.unit.watch.probes.proc_trees import KERNEL_6_1, MEMINFO_3_10, STAT, stat_line, write_tree


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The /proc of that kernel."""
    files = {"stat": STAT, "meminfo": MEMINFO_3_10, "vmstat": KERNEL_6_1}
    monkeypatch.setattr(psutil, "PROCFS_PATH", write_tree(tmp_path, files))


def test_cpu_times_are_those_of_all_cpus_and_cpus_are_counted() -> None:
    reading = CpuReader().read(STAT.encode())
    assert (reading.user, reading.nice, reading.system, reading.idle) == (10, 20, 30, 4000)
    assert (reading.iowait, reading.irq, reading.softirq, reading.steal) == (50, 6, 7, 8)
    assert reading.cpus == 2
    assert (reading.procs_running, reading.procs_blocked) == (3, 2)
    assert (reading.context_switches, reading.boot_wall_s) == (987654, 1700000000)


def test_a_truncated_stat_file_is_refused() -> None:
    with pytest.raises(ValueError, match="procs_running"):
        CpuReader().read(STAT[:60].encode())


def test_memory_is_in_bytes_but_huge_pages_are_counted() -> None:
    reading = read_memory(MEMINFO_3_10.encode())
    assert (reading.total, reading.swap_free) == (16_000_000 * 1024, 3_999_996 * 1024)
    assert (reading.cached, reading.slab_reclaimable) == (8_000_000 * 1024, 150_000 * 1024)
    assert reading.huge_total == 512
    assert reading.huge_page_size == 2048 * 1024


def test_a_kernel_without_memavailable_leaves_it_unknown() -> None:
    assert read_memory(MEMINFO_3_10.encode()).available is None
    assert read_memory(MEMINFO_3_10.encode()).anon_huge is None


def test_pressure_of_both_kinds_is_read() -> None:
    text = b"some avg10=1.13 avg60=3.58 avg300=1.39 total=9471187\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=12\n"
    some, full = parse_stalls(text)
    assert some is not None
    assert full is not None
    assert (some.avg60, some.total_us) == (3.58, 9471187)
    assert (full.avg10, full.total_us) == (0.5, 12)


def test_a_command_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    line = stat_line(7, parent=3, command="a) R 9 (b", state="D", user=11, system=12, start=13, rss=14, blkio=15)
    stat = parse_stat(line.encode())
    assert stat.command == "a) R 9 (b"
    assert (stat.state, stat.parent, stat.user_ticks, stat.system_ticks) == ("D", 3, 11, 12)
    assert (stat.start_ticks, stat.rss_pages, stat.blkio_ticks) == (13, 14, 15)
