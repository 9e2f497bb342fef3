"""A file made shorter from its end, by one cut after another that others on its disk do not feel.

All is done through the descriptor the file was examined by; a name can be changed by somebody else meanwhile, what is
open cannot.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from dba_console.actions.action import Control, QueryConnection
from dba_console.actions.shrink import pace as pacing
from dba_console.actions.shrink.pace import MIB, CutMeasurement, HostPressure, Pace, PaceLimits
from dba_console.core.errors import ConsoleError
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.probes.host import file_systems
from dba_console.watch.probes.host.kernel_counters import DiskStatsParser, parse_stalls
from dba_console.watch.probes.host.kernel_files import read_file
from dba_console.watch.samples.host import Disk

BASELINE_COMMITS = 25
"""Commits timed before the first cut; with the pauses between them a second or so."""
BASELINE_PAUSE_S = 0.02
LEARN_EVERY = 4
"""Cuts of which one has a commit timed right after it and another at the end of its pause; every one has while it
is in doubt whose doing slow commits are."""
BLOCK_MAP_STEP = 16 * MIB
EXTENTS_STEP = 32 * MIB
"""What is cut off at most at a time: a file of extents is freed by a few records, one of block maps (ext2, ext3) block
by block. Where it cannot be told, the smaller."""
GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS of a 64-bit kernel (linux/fs.h)."""
EXTENTS_FLAG = 0x80000
"""FS_EXTENT_FL: the file is mapped by extents."""
PRESSURE_INTERVAL_S = 2.0
"""The kernel brings pressure figures up to date every two seconds (kernel/sched/psi.c, PSI_FREQ)."""
PROGRESS_INTERVAL_S = 0.25
DATABASE_INTERVAL_S = 0.5


class DiskProbe(Protocol):
    """What the cutting can measure."""

    def commit(self) -> float:
        """Seconds a small file's write and fsync take on the same file system now."""

    def host_pressure(self) -> HostPressure:
        """Pressure and device since the last call."""

    def database_commit(self) -> float | None:
        """Seconds a small transaction takes to commit; None where no database is asked."""


@dataclass(slots=True)
class TruncationProgress:
    """How far it is. Bytes are those allocated, which a sparse file has fewer of than its length."""

    total: int
    freed: int = 0
    cuts: int = 0
    worst_s: float = 0.0
    """The longest a commit took beside a cut."""
    quiet_s: float | None = None
    largest_step: int = 0
    started_s: float = 0.0
    duration_s: float = 0.0
    """From the first look to the last cut, pauses included."""
    paused_s: float = 0.0
    """Paused by the operator, or waiting for trouble that is not ours to pass."""
    stopped: str = ""
    """Why it ended before the end of the file; empty at the end."""
    reasons: dict[str, int] = field(default_factory=dict)


def next_length(size: int, step: int, has_data: Callable[[int], bool]) -> int:
    """The length after the next cut. `has_data(at)`: is anything stored at `at` or after it?

    A hole costs nothing to cut, so as much of one as can be told to be hole goes at once; where data begins, it goes
    step by step.

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
    """The largest step for this file, bytes."""
    flags = bytearray(8)
    try:
        fcntl.ioctl(fd, GET_FLAGS, flags)
    except OSError:
        return BLOCK_MAP_STEP
    return EXTENTS_STEP if int.from_bytes(flags[:4], sys.byteorder) & EXTENTS_FLAG else BLOCK_MAP_STEP


def _aligned(length: int) -> int:
    """Down to whole megabytes: a cut through a block would first write what is left of it."""
    return max(0, length // MIB * MIB)


class StepwiseTruncation:
    """Cuts one open file down to nothing. Raises OSError as the file system does."""

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
        """What the last commit after a cut took: that long nothing was cut already."""
        self._usual_pressure = HostPressure()
        self._last_pressure = HostPressure()
        self._pressure_read_s = self._reported_s = self._database_asked_s = 0.0
        self._database_quiet: float | None = None
        self.progress = TruncationProgress(total=status.st_blocks * 512)

    def measure_baseline(self) -> Pace:
        """What is usual here while nothing is cut; the pace to begin with."""
        self._probe.host_pressure()
        self._control.report_progress("measuring what a commit takes here while nothing is cut")
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
        """Cut until nothing is left, or somebody says stop. `before_first`: a last look; what it says stops it."""
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
        if cut.step > 2 * pace.step:  # a hole: says nothing about what data costs
            return pace
        pace = self._check_host(pacing.next_pace(pace, cut, self._limits))
        if pace.reason:
            self.progress.reasons[pace.reason.partition(" took ")[0]] = 1
        self._report(pace)
        return pace

    def _with_quiet_commit(self, pace: Pace) -> Pace:
        """At the end of a pause, now and then: what does a commit take while nothing is cut?"""
        if not self._time_quiet_commit:
            return pace
        self._time_quiet_commit = False
        return pacing.with_quiet_commit(pace, self._probe.commit())

    def _has_data(self, at: int) -> bool:
        if not self._sparse:
            return True
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA) < self._size
        except OSError:  # ENXIO: nothing but a hole from here on
            return False

    def _count(self, step: int, worst_s: float) -> None:
        progress = self.progress
        progress.cuts += 1
        progress.freed = progress.total - os.fstat(self._fd).st_blocks * 512
        progress.worst_s = max(progress.worst_s, worst_s)
        progress.largest_step = max(progress.largest_step, step)

    def _ask_database(self) -> float | None:
        """Right after a cut; and in the next pause, so that there is something to compare it with."""
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
        """Wait while somebody wants it to, or the disk is in trouble that is not ours. Returns why to stop, if so."""
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
            # Too short for anybody to say stop in, and asking costs as much.
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


# What is measured while a file is cut: commits on its file system, its device, the host's pressure, the database.

PAGE_BYTES = bytes(8192)
"""What a WAL writer writes at least."""
COMMIT_STATEMENT = "select pg_catalog.pg_logical_emit_message(true, 'dba-console', '')"
"""Writes about 70 bytes of WAL, which the end of its transaction then has to wait for; changes nothing else."""


class CommitProbe:
    """A page written and synced on the file system of a directory: what a commit has to wait for there.

    The file has no name, so nothing is left of it whatever becomes of us.
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
        """Seconds it took now. Raises OSError."""
        started = time.perf_counter()
        os.pwrite(self._fd, PAGE_BYTES, 0)
        # A new time stamp each time: without one (they are no finer than the kernel's tick) there may be nothing for
        # the journal to commit, and it is the journal that cuts go through.
        self._stamp = (self._stamp + 1_000_000_007) % (1 << 60)
        os.utime(self._fd, ns=(self._stamp, self._stamp))
        os.fsync(self._fd)
        return time.perf_counter() - started

    def close(self) -> None:
        os.close(self._fd)


class HostDiskProbe:
    """The senses of a real cut. Used by one thread; `close` it."""

    def __init__(
        self, directory: str, device: int, connection: QueryConnection | None, *, proc: str = "/proc", sys: str = "/sys"
    ) -> None:
        """`device`: st_dev of the file. Raises OSError where nothing can be written beside it."""
        self._probe = CommitProbe(directory)
        self._proc = proc
        self._disks = DiskStatsParser(proc, sys)
        self._device = file_systems.whole_disk(sys, f"{os.major(device)}:{os.minor(device)}")
        self._previous: Disk | None = None
        self._link = connection
        self.database_note = "" if connection is None else "asked for its commits too"

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
        """Seconds a read or write of the device took, over those since the last call; None without a device of ours."""
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
            self._link.execute(COMMIT_STATEMENT, timeout_s=5.0)
        except ConsoleError as error:
            # A standby, a server before 9.6, one that has gone: the file system's own commits have to do.
            self._link = None
            self.database_note = f"not asked any more: {error.message}"
            return None
        return time.perf_counter() - started


def mean_await_s(before: Disk, now: Disk) -> float | None:
    """Seconds the average read or write between two readings took, what is in flight now counted as one not done.

    Discards are left out: those are ours, and nobody waits for them but through what they hold up.
    """
    done = now.reads - before.reads + now.writes - before.writes
    if done <= 0:
        return None
    return (now.read_ms - before.read_ms + now.write_ms - before.write_ms) / done / 1000
