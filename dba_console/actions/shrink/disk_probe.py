"""What is measured while a file is cut: commits on its file system, its device, the host's pressure, the database."""

from __future__ import annotations

import os
import time

from dba_console.actions.action import QueryConnection
from dba_console.actions.shrink.pace import HostPressure
from dba_console.errors import ConsoleError
from dba_console.probes.host import block_devices
from dba_console.probes.host.diskstats import DiskStatsParser
from dba_console.probes.host.kernel_files import read_file
from dba_console.probes.host.pressure import parse_stalls
from dba_console.samples.host import Disk

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
        self._device = block_devices.whole_disk(sys, f"{os.major(device)}:{os.minor(device)}")
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
