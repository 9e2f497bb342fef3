"""Reads the counters of the kernel: CPU, memory, vmstat, pressure, disks; kernel settings and NUMA memory.

psutil reads what it has, exactly as the kernel counts it; the parsers here read the rest of the same files
(docs/architecture.md lists both, with what they cost).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from dba_console.watch.probes.host import file_systems
from dba_console.watch.probes.host.file_systems import mount_of_path, read_mounts
from dba_console.watch.probes.host.kernel_files import read_file, read_int, read_word
from dba_console.watch.samples.host import Cpu, Disk, Disks, HostSettings, MemInfo, NumaNode, PressureStall, VmStat

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_ZONES = (b"_dma", b"_dma32", b"_normal", b"_high", b"_movable", b"_device")

_RENAMED: dict[str, tuple[bytes, ...]] = {
    "pgpgin_kb": (b"pgpgin",),
    "pgpgout_kb": (b"pgpgout",),
    # Before 5.9 only file pages had a workingset counter, without suffix.
    "refault_file": (b"workingset_refault_file", b"workingset_refault"),
    "refault_anon": (b"workingset_refault_anon",),
}
"""Fields whose kernel name differs: the first that exists is used."""


class VmStatParser:
    """Parses /proc/vmstat. Each counter's position is looked up once: the kernel does not reorder the file while it
    runs.

    A counter is summed over its family: `pgsteal_kswapd` (from 4.8) is also `pgsteal_kswapd_dma`, `..._normal` and so
    on (3.5 to 4.7). A family this kernel does not have is None. Names from mm/vmstat.c of the kernels 2.6.32 to 6.18.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._tokens = -1
        self._plan: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []

    def parse(self, data: bytes) -> VmStat:
        """Return the reading. Raises ValueError if the file does not consist of `name number` lines."""
        tokens = data.split()
        if len(tokens) != self._tokens:
            if len(tokens) % 2:
                raise ValueError("/proc/vmstat does not consist of names and numbers")
            self._plan = _plan(tokens[::2])
            self._tokens = len(tokens)
        values = [None if places is None else _sum(tokens, *places) for places in self._plan]
        return VmStat(self._page_size, *values)


def _sum(tokens: Sequence[bytes], added: tuple[int, ...], taken: tuple[int, ...]) -> int:
    if len(added) == 1 and not taken:
        return int(tokens[added[0]])
    return sum(int(tokens[place]) for place in added) - sum(int(tokens[place]) for place in taken)


def _plan(names: Sequence[bytes]) -> list[tuple[tuple[int, ...], tuple[int, ...]] | None]:
    """Return for each field of VmStat after the page size the positions to add and to subtract, None if missing."""
    place = {name: 2 * index + 1 for index, name in enumerate(names)}
    return [_counter_places(place, field) for field in VmStat.__struct_fields__[1:]]


def _counter_places(place: dict[bytes, int], field: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    for name in _RENAMED.get(field, (field.encode(),)):
        # Zones only: pgscan_direct_throttle is another counter, not a part of pgscan_direct.
        members = tuple(place[member] for member in (name, *(name + zone for zone in _ZONES)) if member in place)
        if members:
            return members, ()
    return _old_reclaim_places(place, field)


def _old_reclaim_places(place: dict[bytes, int], field: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Kernels before 3.5 count reclaim by zone for all callers together, and kswapd's share as kswapd_steal."""
    kswapd = place.get(b"kswapd_steal")
    if kswapd is None:
        return None
    if field == "pgsteal_kswapd":
        return (kswapd,), ()
    if field == "pgsteal_direct":
        total = tuple(place[b"pgsteal" + zone] for zone in _ZONES if b"pgsteal" + zone in place)
        return (total, (kswapd,)) if total else None
    return None


# CPU times and boot time from psutil; number of CPUs, context switches, running and blocked tasks from /proc/stat
# (Documentation/filesystems/proc.rst). The more CPUs and interrupts, the longer the kernel writes that file, so it is
# not read a third time.

_CPU_LINE = re.compile(rb"^cpu\d", re.M)


class CpuReader:
    """Reads CPU counters. The time of the boot is read once: nothing outlives a boot."""

    def __init__(self) -> None:
        self._boot_wall_s: int | None = None

    def read(self, stat: bytes) -> Cpu:
        """Return the reading; `stat` is the content of /proc/stat. Raises OSError, ValueError.

        Guest time is already part of user time and is not added again.
        """
        running, blocked = _after(stat, b"procs_running"), _after(stat, b"procs_blocked")
        if self._boot_wall_s is None:
            self._boot_wall_s = int(psutil.boot_time())
        times = psutil.cpu_times()
        return Cpu(
            user=_ticks(times.user), nice=_ticks(times.nice), system=_ticks(times.system), idle=_ticks(times.idle),
            iowait=_ticks(times.iowait), irq=_ticks(times.irq), softirq=_ticks(times.softirq),
            steal=_ticks(times.steal), cpus=len(_CPU_LINE.findall(stat)), procs_running=running, procs_blocked=blocked,
            context_switches=_after(stat, b"ctxt"), boot_wall_s=self._boot_wall_s,
        )  # fmt: skip


def _ticks(seconds: float) -> int:
    """Return the kernel's counter, which psutil divides by the ticks per second."""
    return round(seconds * _TICKS_PER_S)


def _after(data: bytes, word: bytes) -> int:
    """Return the number after `word` at the start of a line."""
    start = data.find(b"\n" + word + b" ")
    if start < 0:
        raise ValueError(f"/proc/stat has no line {word.decode()}")
    start += len(word) + 2
    end = data.find(b"\n", start)
    return int(data[start : end if end >= 0 else None])


# Memory in bytes (Documentation/filesystems/proc.rst): totals from psutil; from /proc/meminfo what it lacks, the cache
# without reclaimable slab, which psutil adds, and swap, for which psutil would read vmstat too. A line that this kernel
# does not write is None.


def read_memory(meminfo: bytes) -> MemInfo:
    """Return the reading; `meminfo` is the content of /proc/meminfo. Raises OSError, KeyError for a missing line that
    every kernel has.

    MemAvailable exists since 3.14, and psutil's estimate of it is not used before; HugePages_* are counts.
    """
    values = meminfo_values(meminfo)
    may = values.get
    memory = psutil.virtual_memory()
    return MemInfo(
        total=memory.total, free=memory.free, available=memory.available if b"MemAvailable:" in values else None,
        buffers=memory.buffers, cached=values[b"Cached:"], swap_cached=may(b"SwapCached:"),
        active_file=may(b"Active(file):"), inactive_file=may(b"Inactive(file):"),
        dirty=values[b"Dirty:"], writeback=values[b"Writeback:"], anon=may(b"AnonPages:"), shmem=memory.shared,
        slab=memory.slab, slab_reclaimable=may(b"SReclaimable:"),
        swap_total=values[b"SwapTotal:"], swap_free=values[b"SwapFree:"],
        commit_limit=may(b"CommitLimit:"), committed=may(b"Committed_AS:"), anon_huge=may(b"AnonHugePages:"),
        huge_total=may(b"HugePages_Total:"), huge_free=may(b"HugePages_Free:"), huge_reserved=may(b"HugePages_Rsvd:"),
        huge_page_size=may(b"Hugepagesize:"),
    )  # fmt: skip


_MEMINFO_LINE = re.compile(rb"^(\S+:?)[ \t]+(\d+)( kB)?$", re.M)


def meminfo_values(data: bytes) -> dict[bytes, int]:
    """Return name (with its colon) -> bytes, or a plain count where the kernel writes no unit."""
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in _MEMINFO_LINE.findall(data)}


# /proc/pressure: pressure stall information (Documentation/accounting/psi.rst, kernels from 4.20).


def parse_stalls(data: bytes) -> tuple[PressureStall | None, PressureStall | None]:
    """Return the `some` and `full` lines of one file; None for a missing line (cpu has no full before 5.13).

    >>> parse_stalls(b"some avg10=1.50 avg60=0.20 avg300=0.00 total=42\\n")
    (PressureStall(avg10=1.5, avg60=0.2, avg300=0.0, total_us=42), None)
    """
    found: dict[bytes, PressureStall] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) == 5:
            avg10, avg60, avg300, total = (word.partition(b"=")[2] for word in words[1:])
            found[words[0]] = PressureStall(float(avg10), float(avg60), float(avg300), int(total))
    return found.get(b"some"), found.get(b"full")


# I/O of each whole block device since boot (Documentation/admin-guide/iostats.rst): reads, writes and busy time from
# psutil; device numbers, requests in flight, weighted time, discards and flushes from /proc/diskstats.

_NO_IO = [b"0"] * 11
_SECTOR = 512
"""Bytes, whatever the device's own; psutil multiplies by it."""
_REFRESH_US = 30_000_000
"""Interval of reading /sys again: a loop device may have been bound to another file."""


class DiskReader:
    """Reads the disks. Caches which devices are whole and their underlying devices: /sys is read when a device appears
    and every 30 s."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._known: dict[bytes, list[str] | None] = {}
        """`major minor name` -> underlying devices; None for a partition."""
        self._parsed: dict[bytes, Disk | None] = {}
        """Line of the last reading -> its device: an idle device's line does not change. None: not shown."""
        self._until_us = 0

    def read(self, diskstats: bytes, now_us: int) -> Disks:
        """Return whole devices with any I/O since boot; `diskstats` is the content of /proc/diskstats. Raises OSError,
        ValueError for a line that is not one of diskstats."""
        if now_us >= self._until_us:
            self._known.clear()
            self._parsed.clear()
            self._until_us = now_us + _REFRESH_US
        before, lines = self._parsed, diskstats.splitlines()
        if before.keys() != set(lines):
            # After the lines: what changes in between changes the line again, so no device is taken for idle.
            counters = psutil.disk_io_counters(perdisk=True, nowrap=False)
            self._parsed = {line: before[line] if line in before else self._device(line, counters) for line in lines}
        return Disks([disk for disk in self._parsed.values() if disk is not None])

    def _device(self, line: bytes, counters: Mapping[str, Any]) -> Disk | None:
        words = line.split()
        if len(words) < 14 or words[3:14] == _NO_IO:  # less: a partition's short line of kernels before 2.6.25
            return None
        counted = counters.get(os.fsdecode(words[2]))  # None: it has just been removed
        under = None if counted is None else self._underlying(words)
        return None if under is None else _disk(words, counted, under)

    def _underlying(self, words: Sequence[bytes]) -> list[str] | None:
        key = b" ".join(words[:3])
        if key not in self._known:
            self._known[key] = self._look_up(words[2].decode("utf-8", "backslashreplace"))
        return self._known[key]

    def _look_up(self, name: str) -> list[str] | None:
        if not file_systems.is_whole(self._sys, name):
            return None
        if (path := file_systems.backing_file(self._sys, name)) is not None:
            return self._disk_of_file(path)
        return file_systems.slaves(self._sys, name)

    def _disk_of_file(self, path: str) -> list[str]:
        """From the mount table alone: the file itself is not accessed, its file system may hang."""
        try:
            mount = mount_of_path(read_mounts(self._proc), path)
        except OSError:
            return []
        disk = None if mount is None else file_systems.whole_disk(self._sys, mount.device)
        return [] if disk is None else [disk]


def _disk(words: Sequence[bytes], counted: Any, under: list[str]) -> Disk:
    # Discards (count, merged, sectors, time) were added in 4.18, flushes (count, time) in 5.5.
    late: list[int | None] = [*(int(word) for word in words[14:20]), *[None] * 6]
    return Disk(
        words[2].decode("utf-8", "backslashreplace"), int(words[0]), int(words[1]),
        counted.read_count, counted.read_bytes // _SECTOR, counted.read_time,
        counted.write_count, counted.write_bytes // _SECTOR, counted.write_time,
        int(words[11]), counted.busy_time, int(words[13]), late[0], late[2], late[3], late[4], late[5], under,
    )  # fmt: skip


# Kernel settings that matter for a database, and memory by NUMA node: Documentation/admin-guide/sysctl/vm.rst,
# .../mm/transhuge.rst, .../numastat.rst.

_THP = ("kernel/mm/transparent_hugepage", "kernel/mm/redhat_transparent_hugepage")


def read_settings(proc: str, sys: str) -> HostSettings:
    """Return all settings; None for each that this kernel does not have or that is not readable."""
    vm = f"{proc}/sys/vm"
    return HostSettings(
        kernel=read_word(f"{proc}/sys/kernel/osrelease") or os.uname().release,
        hostname=read_word(f"{proc}/sys/kernel/hostname") or os.uname().nodename,
        zone_reclaim_mode=read_int(f"{vm}/zone_reclaim_mode"),
        thp=_chosen(sys, "enabled"),
        thp_defrag=_chosen(sys, "defrag"),
        swappiness=read_int(f"{vm}/swappiness"),
        dirty_ratio=read_int(f"{vm}/dirty_ratio"),
        dirty_background_ratio=read_int(f"{vm}/dirty_background_ratio"),
        watermark_scale_factor=read_int(f"{vm}/watermark_scale_factor"),
        watermark_boost_factor=read_int(f"{vm}/watermark_boost_factor"),
        min_free_kbytes=read_int(f"{vm}/min_free_kbytes"),
        overcommit_memory=read_int(f"{vm}/overcommit_memory"),
        task_delayacct=read_int(f"{proc}/sys/kernel/task_delayacct"),
        numa=read_numa(sys),
        clock_error_us=read_clock_error_us(),
    )


def _chosen(sys: str, name: str) -> str | None:
    """Return the word in brackets of a transparent_hugepage file."""
    for directory in _THP:
        text = read_word(f"{sys}/{directory}/{name}")
        if text is not None:
            match = re.search(r"\[([^\]]+)\]", text)
            return match[1] if match else None
    return None


def read_numa(sys: str) -> list[NumaNode]:
    """Return the memory of each node in the order of their numbers; empty if the kernel shows none."""
    base = f"{sys}/devices/system/node"
    try:
        names = os.listdir(base)
    except OSError:
        return []
    numbers = sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))
    return [node for number in numbers if (node := _node(base, number)) is not None]


def _node(base: str, number: int) -> NumaNode | None:
    try:
        meminfo = read_file(f"{base}/node{number}/meminfo")
        values = meminfo_values(meminfo.replace(b"Node %d " % number, b""))
        total, free = values[b"MemTotal:"], values[b"MemFree:"]
    except (OSError, KeyError, ValueError):
        return None
    counters = _numastat(f"{base}/node{number}/numastat")
    return NumaNode(
        number, total, free, values.get(b"FilePages:"), counters.get(b"numa_miss"), counters.get(b"numa_foreign")
    )


def _numastat(path: str) -> dict[bytes, int]:
    try:
        words = read_file(path).split()
        return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}
    except (OSError, ValueError):
        return {}


# How far the host's clock may be off, as the kernel's clock discipline knows it: adjtimex(2).

_UNSYNCHRONIZED = 0x0040
"""STA_UNSYNC of linux/timex.h."""


class _Timex(ctypes.Structure):
    """The beginning of struct timex; the rest is only padding here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 512),
    )


_adjtimex = getattr(ctypes.CDLL(None, use_errno=True), "adjtimex", None)


def read_clock_error_us() -> int | None:
    """Return the maximum error of the clock against UTC in microseconds; None if it is not synchronized, or unknown."""
    timex = _Timex()
    if _adjtimex is None or _adjtimex(ctypes.byref(timex)) < 0 or timex.status & _UNSYNCHRONIZED:
        return None
    return int(timex.maxerror)
