"""/proc/stat, meminfo, pressure, PID/stat and PID/io as several kernels write them."""

from __future__ import annotations

import pytest

from dba_console.watch.probes.host.kernel_counters import parse_cpu, parse_memory, parse_stalls
from dba_console.watch.probes.host.kernel_files import parse_io, parse_stat
from tests.unit.watch.probes.proc_trees import MEMINFO_3_10, STAT, io_text, stat_line


def test_cpu_times_are_those_of_all_cpus_and_cpus_are_counted() -> None:
    reading = parse_cpu(STAT.encode())
    assert (reading.user, reading.idle, reading.iowait, reading.steal) == (10, 4000, 50, 8)
    assert reading.cpus == 2
    assert (reading.procs_running, reading.procs_blocked) == (3, 2)
    assert (reading.context_switches, reading.boot_wall_s) == (987654, 1700000000)


def test_a_truncated_stat_file_is_refused() -> None:
    with pytest.raises(ValueError, match="procs_running"):
        parse_cpu(STAT[:60].encode())


def test_memory_is_in_bytes_but_huge_pages_are_counted() -> None:
    reading = parse_memory(MEMINFO_3_10.encode())
    assert reading.cached == 8_000_000 * 1024
    assert reading.huge_total == 512
    assert reading.huge_page_size == 2048 * 1024


def test_a_kernel_without_memavailable_leaves_it_unknown() -> None:
    assert parse_memory(MEMINFO_3_10.encode()).available is None
    assert parse_memory(MEMINFO_3_10.encode()).anon_huge is None


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


def test_a_kernel_without_io_accounting_reports_no_bytes() -> None:
    assert parse_io(io_text(4096, 8192).encode()) == (4096, 8192)
    assert parse_io(b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n") == (None, None)
