"""Measure the CPU time of a run's processes, and CPU and disk utilization of this host meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import psutil

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.clock import SYSTEM, Clock
from dba_console.jobs.tools.scratch_directory import mount_of
from dba_console.watch.probes.host import file_systems
from dba_console.watch.probes.host.kernel_counters import CpuReader, DiskReader
from dba_console.watch.probes.host.kernel_files import ProcStat, read_file, read_stat
from dba_console.watch.samples.host import Cpu, Disk

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_CLOCK_TOLERANCE_S = 5.0
"""Allowed difference between a backend's start according to the kernel and to the server: the clock may be adjusted."""


class CpuTimes(NamedTuple):
    """CPU time of processes in seconds, as last read."""

    seconds_by_pid: dict[int, float]

    def update(self, pids: Iterable[int]) -> None:
        """Read the CPU time of these processes again; an ended process keeps its last value."""
        for pid in pids:
            stat = read_stat("/proc", pid)
            if stat is not None:
                self.seconds_by_pid[pid] = max(self.seconds_by_pid.get(pid, 0.0), cpu_s(stat))

    @property
    def total(self) -> float:
        return sum(self.seconds_by_pid.values())


def cpu_s(stat: ProcStat) -> float:
    return (stat.user_ticks + stat.system_ticks) * TICK_S


class HostUsage(NamedTuple):
    """Utilization of the host between two readings. None: not known."""

    busy_pct: float | None
    iowait_pct: float | None
    read_bytes: int | None
    read_util_pct: float | None
    write_util_pct: float | None


class HostCounters(NamedTuple):
    cpu: Cpu | None
    disks: dict[str, Disk]
    mono_us: int


class HostMeter:
    """Reads CPU and disk counters of the host; devices of the data directory and of the output, if known."""

    def __init__(self, data: str | None, written: str | None, clock: Clock = SYSTEM) -> None:
        self._data_device, self._output_device, self._clock = data, written, clock
        self._cpu_reader = CpuReader()
        self._disk_reader = DiskReader("/proc", "/sys")

    def read(self) -> HostCounters:
        now = self._clock.mono_us()
        try:
            cpu = self._cpu_reader.read(read_file("/proc/stat"))
        except (OSError, ValueError):
            cpu = None
        try:
            disks = {disk.name: disk for disk in self._disk_reader.read(read_file("/proc/diskstats"), now).devices}
        except (OSError, ValueError):
            disks = {}
        return HostCounters(cpu, disks, now)

    def usage_between(self, before: HostCounters, after: HostCounters) -> HostUsage:
        busy, iowait = _cpu_shares(before.cpu, after.cpu)
        sectors, read_util = self._disk(self._data_device, before, after)
        _, write_util = self._disk(self._output_device, before, after)
        return HostUsage(busy, iowait, sectors, read_util, write_util)

    def _disk(self, name: str | None, before: HostCounters, after: HostCounters) -> tuple[int | None, float | None]:
        old, new = (before.disks.get(name), after.disks.get(name)) if name else (None, None)
        if new is None or old is None:
            return None, None
        took_ms = (after.mono_us - before.mono_us) / 1000
        util = min(100.0, 100 * (new.io_ms - old.io_ms) / took_ms) if took_ms > 0 else None
        return (new.read_sectors - old.read_sectors) * 512, util


def _cpu_shares(old: Cpu | None, new: Cpu | None) -> tuple[float | None, float | None]:
    if old is None or new is None:
        return None, None

    def all_of(cpu: Cpu) -> int:
        return cpu.user + cpu.nice + cpu.system + cpu.idle + cpu.iowait + cpu.irq + cpu.softirq + cpu.steal

    total = all_of(new) - all_of(old)
    if total <= 0:
        return None, None
    waiting = 100 * max(0, new.iowait - old.iowait) / total
    idle = 100 * max(0, new.idle - old.idle) / total
    return max(0.0, 100 - idle - waiting), waiting


def disk_under(path: str | None) -> str | None:
    """Return the whole disk that holds a path; None for tmpfs, network file systems and unknown devices."""
    if path is None or (mount := mount_of(path)) is None:
        return None
    disk = file_systems.whole_disk("/sys", mount.device)
    if disk is None and mount.source.startswith("/dev/"):
        disk = file_systems.disk_of_name("/sys", mount.source.rpartition("/")[2])
    return disk


def is_local_server(server: QueryConnection) -> bool:
    """Check whether the server runs on this host: our backend must be a local process with the same start time."""
    stat = read_stat("/proc", server.mark.pid)
    if stat is None or not stat.command.startswith(("postgres", "postmaster")):
        return False
    started_s = psutil.boot_time() + stat.start_ticks * TICK_S
    return bool(abs(started_s - server.mark.backend_start_us / 1e6) < _CLOCK_TOLERANCE_S)


def usable_cpus() -> int:
    """Return the number of CPUs this process may use."""
    return len(os.sched_getaffinity(0))
