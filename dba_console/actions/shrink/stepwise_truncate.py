"""Truncate a file from its end in small cuts, with pauses adapted to the commit times on its disk.

Works only on the open descriptor of the examined file; its name could be changed by another process meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dba_console.actions.action import Control
from dba_console.actions.shrink import pace as pacing
from dba_console.actions.shrink.pace import MIB, CutMeasurement, HostPressure, Pace, PaceLimits
from dba_console.core.errors import ConsoleError
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.probes.host import file_systems
from dba_console.watch.probes.host.kernel_counters import DiskStatsParser, parse_stalls
from dba_console.watch.probes.host.kernel_files import read_file
from dba_console.watch.samples.host import Disk

if TYPE_CHECKING:
    from dba_console.actions.acting_connection import ActingConnection

BASELINE_COMMITS = 25
"""Commits timed before the first cut; about a second with the pauses between them."""
BASELINE_PAUSE_S = 0.02
LEARN_EVERY = 4
"""Every fourth cut has a commit timed right after it and another at the end of its pause; every cut while the cause
of slow commits is unclear."""
BLOCK_MAP_STEP = 16 * MIB
EXTENTS_STEP = 32 * MIB
"""Maximum cut: a file with extents is freed by a few records, one with block maps (ext2, ext3) block by block. If it is
unknown, the smaller."""
GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS of a 64-bit kernel (linux/fs.h)."""
EXTENTS_FLAG = 0x80000
"""FS_EXTENT_FL: the file is mapped by extents."""
PRESSURE_INTERVAL_S = 2.0
"""The kernel updates pressure averages every two seconds (kernel/sched/psi.c, PSI_FREQ)."""
PROGRESS_INTERVAL_S = 0.25
DATABASE_INTERVAL_S = 0.5


class DiskProbe(Protocol):
    """Measurements during the truncation."""

    def commit(self) -> float:
        """Return the seconds of a small write and fsync on the same file system."""

    def host_pressure(self) -> HostPressure:
        """Return pressure and device waits since the last call."""

    def database_commit(self) -> float | None:
        """Return the seconds of a small transaction's commit; None without a database."""


@dataclass(slots=True)
class TruncationProgress:
    """Progress of the truncation. Bytes are allocated bytes, fewer than the length of a sparse file."""

    total: int
    freed: int = 0
    cuts: int = 0
    worst_s: float = 0.0
    """The longest commit during a cut."""
    quiet_s: float | None = None
    largest_step: int = 0
    started_s: float = 0.0
    duration_s: float = 0.0
    """From the first measurement to the last cut, including pauses."""
    paused_s: float = 0.0
    """Paused by the operator, or waiting because of other load."""
    stopped: str = ""
    """Why it ended before the end of the file; empty at the end."""
    reasons: dict[str, int] = field(default_factory=dict)


def next_length(size: int, step: int, has_data: Callable[[int], bool]) -> int:
    """Return the length after the next cut. `has_data(at)`: whether any data is stored at `at` or after it.

    A hole costs nothing to cut, so all of it is cut at once; data is cut step by step.

    >>> next_length(100 * MIB, 10 * MIB, lambda at: True) // MIB
    90
    >>> next_length(100 * MIB, 10 * MIB, lambda at: at < 30 * MIB) // MIB
    60
    """
    target = _aligned(size - step)
    if target == 0 or has_data(target):
        return target
    span = step
    while target > 0:
        further = _aligned(size - 2 * span)
        if has_data(further):
            return target
        span, target = 2 * span, further
    return 0


def largest_step(fd: int) -> int:
    """Return the largest step for this file, in bytes."""
    flags = bytearray(8)
    try:
        fcntl.ioctl(fd, GET_FLAGS, flags)
    except OSError:
        return BLOCK_MAP_STEP
    return EXTENTS_STEP if int.from_bytes(flags[:4], sys.byteorder) & EXTENTS_FLAG else BLOCK_MAP_STEP


def _aligned(length: int) -> int:
    """Round down to whole megabytes: a cut inside a block would first write the rest of the block."""
    return max(0, length // MIB * MIB)


class StepwiseTruncation:
    """Truncates one open file to 0. Raises OSError of the file system."""

    def __init__(
        self,
        fd: int,
        probe: DiskProbe,
        control: Control,
        limits: PaceLimits,
        *,
        flags: Callable[[], str] = lambda: "",
        seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        status = os.fstat(fd)
        self._fd = fd
        self._probe = probe
        self._control = control
        self._limits = replace(limits, largest_step=min(limits.largest_step, largest_step(fd)))
        self._flags = flags
        self._now = seconds
        self._size = status.st_size
        self._sparse = status.st_blocks * 512 < status.st_size
        self._time_quiet_commit = False
        self._commit_after_cut_s = 0.0
        """Time of the last commit after a cut, which already counts as pause."""
        self._usual_pressure = HostPressure()
        self._last_pressure = HostPressure()
        self._pressure_read_s = self._reported_s = self._database_asked_s = 0.0
        self._database_quiet: float | None = None
        self.progress = TruncationProgress(total=status.st_blocks * 512)

    def measure_baseline(self) -> Pace:
        """Measure commits and pressure before the first cut; return the first pace."""
        self._probe.host_pressure()
        self._control.report_progress("measuring the commit time before the first cut")
        baseline = []
        for _ in range(BASELINE_COMMITS):
            baseline.append(self._probe.commit())
            if self._control.wait(BASELINE_PAUSE_S):
                break
        self._database_quiet = self._probe.database_commit()
        self._usual_pressure = self._last_pressure = self._probe.host_pressure()
        self.progress.started_s = self._pressure_read_s = self._database_asked_s = self._now()
        return pacing.first_pace(tuple(baseline), self._limits)

    def run(self, pace: Pace, before_first: Callable[[], str] = lambda: "") -> TruncationProgress:
        """Cut to the end, or until a stop is requested. `before_first`: a last check; a text it returns stops it."""
        while self._size > 0:
            if why := self._wait_while_paused(pace):
                self.progress.stopped = why
                break
            if self.progress.cuts == 0 and (why := before_first()):
                self.progress.stopped = why
                break
            pace = self._cut(self._with_quiet_commit(pace))
            self.progress.quiet_s = pace.quiet_s
            if self._size > 0 and self._pause(
                max(self._limits.shortest_pause_s, pace.pause_s - self._commit_after_cut_s)
            ):
                self.progress.stopped = "stopped by the operator"
                break
        self.progress.duration_s = self._now() - self.progress.started_s
        return self.progress

    def _cut(self, pace: Pace) -> Pace:
        length = next_length(self._size, pace.step, self._has_data)
        started = self._now()
        os.ftruncate(self._fd, length)
        os.fsync(self._fd)
        own = self._now() - started
        database, database_quiet = self._ask_database(), self._database_quiet
        self._time_quiet_commit = pace.in_doubt or self.progress.cuts % LEARN_EVERY == 0
        following = self._probe.commit() if self._time_quiet_commit else None
        self._commit_after_cut_s = following or 0.0
        cut = CutMeasurement(self._size - length, own, following, database, database_quiet)
        self._size = length
        self._count(cut.step, max(own, following or 0.0))
        if cut.step > 2 * pace.step:  # a hole: no measure for the cost of data
            return pace
        pace = self._check_host(pacing.next_pace(pace, cut, self._limits))
        if pace.reason:
            self.progress.reasons[pace.reason.partition(" took ")[0]] = 1
        self._report(pace)
        return pace

    def _with_quiet_commit(self, pace: Pace) -> Pace:
        """Time a commit at the end of a pause, if this cut was selected for it."""
        if not self._time_quiet_commit:
            return pace
        self._time_quiet_commit = False
        return pacing.with_quiet_commit(pace, self._probe.commit())

    def _has_data(self, at: int) -> bool:
        if not self._sparse:
            return True
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA) < self._size
        except OSError:  # ENXIO: only a hole from here on
            return False

    def _count(self, step: int, worst_s: float) -> None:
        progress = self.progress
        progress.cuts += 1
        progress.freed = progress.total - os.fstat(self._fd).st_blocks * 512
        progress.worst_s = max(progress.worst_s, worst_s)
        progress.largest_step = max(progress.largest_step, step)

    def _ask_database(self) -> float | None:
        """Time a commit of the database right after a cut; the next pause times one for comparison."""
        if self._database_quiet is None or self._now() - self._database_asked_s < DATABASE_INTERVAL_S:
            return None
        self._database_asked_s = self._now()
        return self._probe.database_commit()

    def _check_host(self, pace: Pace) -> Pace:
        if self._now() - self._pressure_read_s < PRESSURE_INTERVAL_S:
            return pace
        self._pressure_read_s = self._now()
        now = self._probe.host_pressure()
        pace, self._usual_pressure = pacing.adapt_to_host(
            pace, self._usual_pressure, self._last_pressure, now, self._limits
        )
        self._last_pressure = now
        if self._database_quiet is not None:
            self._pause(pace.pause_s)
            self._database_quiet = self._probe.database_commit()
        return pace

    def _wait_while_paused(self, pace: Pace) -> str:
        """Wait while it is paused, or the disk is saturated by other work. Return why to stop; empty: continue."""
        started = self._now()
        wait_s = 0.25
        while True:
            if self._control.stop_requested():
                return "stopped by the operator"
            flag = self._flags()
            if flag.startswith("stop"):
                return f"stopped by the file {flag.partition(' ')[2]}"
            if self._control.pause_requested():
                why = "paused by the operator"
            elif flag:
                why = f"paused until the file {flag.partition(' ')[2]} is gone"
            else:
                last = pace.quiet[-1] if pace.quiet and wait_s == 0.25 else self._probe.commit()
                if not (why := pacing.foreign_load_reason(last, self._limits)):
                    break
            self._control.report_progress(
                f"{self._progress_text()}; {why}", self.progress.freed, self.progress.total, "bytes"
            )
            self._control.wait(wait_s)
            wait_s = min(2.0, wait_s * 2)
        self.progress.paused_s += self._now() - started
        return ""

    def _pause(self, seconds: float) -> bool:
        if seconds < 0.05:
            # Too short for a stop request, and checking for one costs as much.
            time.sleep(max(0.0, seconds))
            return False
        return self._control.wait(seconds)

    def _report(self, pace: Pace) -> None:
        if self._now() - self._reported_s < PROGRESS_INTERVAL_S:
            return
        self._reported_s = self._now()
        text = f"{self._progress_text()}; {pacing.pace_text(pace)}"
        self._control.report_progress(text, float(self.progress.freed), float(self.progress.total), "bytes")

    def _progress_text(self) -> str:
        freed, total = self.progress.freed, self.progress.total
        spent = self._now() - self.progress.started_s - self.progress.paused_s
        text = f"{human_bytes(freed)} of {human_bytes(total)} freed"
        if freed <= 0 or spent <= 0:
            return text
        rate = freed / spent
        left = human_duration((total - freed) / rate)
        return f"{text}, {human_bytes(rate, per_s=True)}, about {left} left (estimated from the rate so far)"


# Measurements during the truncation: commits on the file system, the device, the host's pressure, the database.

PAGE_BYTES = bytes(8192)
"""The minimum that the WAL writer writes."""
COMMIT_STATEMENT = "select pg_catalog.pg_logical_emit_message(true, 'dba-console', '')"
"""Writes about 70 bytes of WAL, for which the commit then waits; changes nothing else."""


class CommitProbe:
    """Writes and syncs a page on the file system of a directory, as a commit does.

    The file has no name, so nothing is left behind after a crash.
    """

    def __init__(self, directory: str) -> None:
        self._stamp = 0
        try:
            self._fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:  # a file system without unnamed files
            name = f"{directory}/.dba-console-probe-{os.getpid()}"
            self._fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.unlink(name)

    def time(self) -> float:
        """Write and sync; return the seconds. Raises OSError."""
        started = time.perf_counter()
        os.pwrite(self._fd, PAGE_BYTES, 0)
        # A new time stamp each time: otherwise (they are as coarse as the kernel's tick) the journal, through which
        # the cuts go, may have nothing to commit.
        self._stamp = (self._stamp + 1_000_000_007) % (1 << 60)
        os.utime(self._fd, ns=(self._stamp, self._stamp))
        os.fsync(self._fd)
        return time.perf_counter() - started

    def close(self) -> None:
        os.close(self._fd)


class HostDiskProbe:
    """`DiskProbe` of the real host. Not thread-safe; the caller closes it."""

    def __init__(
        self,
        directory: str,
        device: int,
        connection: ActingConnection | None,
        *,
        proc: str = "/proc",
        sys: str = "/sys",
    ) -> None:
        """`device`: st_dev of the file. Raises OSError if its directory cannot be written."""
        self._probe = CommitProbe(directory)
        self._proc = proc
        self._disks = DiskStatsParser(proc, sys)
        self._device = file_systems.whole_disk(sys, f"{os.major(device)}:{os.minor(device)}")
        self._previous: Disk | None = None
        self._link = connection
        self.database_note = "" if connection is None else "commits measured"

    def close(self) -> None:
        self._probe.close()

    def commit(self) -> float:
        return self._probe.time()

    def host_pressure(self) -> HostPressure:
        return HostPressure(self._read_io_stall(), self._read_await())

    def _read_io_stall(self) -> float | None:
        try:
            some, _ = parse_stalls(read_file(f"{self._proc}/pressure/io"))
        except (OSError, ValueError):
            return None
        return None if some is None else some.avg10

    def _read_await(self) -> float | None:
        """Return the mean seconds of a read or write of the device since the last call; None: device not found."""
        try:
            found = self._disks.parse(read_file(f"{self._proc}/diskstats"), time.monotonic_ns() // 1000).devices
        except (OSError, ValueError):
            return None
        before, now = self._previous, next((disk for disk in found if disk.name == self._device), None)
        self._previous = now
        if before is None or now is None:
            return None
        return mean_await_s(before, now)

    def database_commit(self) -> float | None:
        if self._link is None:
            return None
        started = time.perf_counter()
        try:
            self._link.execute_change(COMMIT_STATEMENT, timeout_s=5.0)
        except ConsoleError as error:
            # A standby, a server before 9.6, a lost connection: only the file system's commits are measured then.
            self._link = None
            self.database_note = f"commits no longer measured: {error.message}"
            return None
        return time.perf_counter() - started


def mean_await_s(before: Disk, now: Disk) -> float | None:
    """Return the mean seconds of a read or write between two readings; requests in flight are not counted.

    Discards are left out: they are our own, and others wait for them only through the requests that they delay.
    """
    done = now.reads - before.reads + now.writes - before.writes
    if done <= 0:
        return None
    return (now.read_ms - before.read_ms + now.write_ms - before.write_ms) / done / 1000
