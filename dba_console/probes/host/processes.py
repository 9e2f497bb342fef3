"""CPU time, state, memory and storage I/O of the postmaster and its children.

Reading all of a thousand idle backends each second would cost more than the rest of the console. So each second those
are read that the server says are active, that used CPU when last read, or that are new; the others in turn, all of
them within `TURN_TICKS` ticks. A process not read in a tick has no row in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from dba_console.probes.host.kernel_files import KernelFile, read_once
from dba_console.probes.host.postmaster_children import PostmasterChildren
from dba_console.probes.host.procstat import STAT_SIZE, ProcStat, parse_io, parse_stat
from dba_console.samples.host import Process, Processes

TURN_TICKS = 20
"""Ticks in which every idle process has been read once."""

MAX_OPEN_PROCESSES = 64
"""Processes whose files are kept open: two descriptors each, well below the usual limit of 1024."""

IO_DENIED = (
    "bytes read and written by backends are not known: reading /proc/PID/io needs root or the owner of the server"
)


@dataclass(slots=True)
class _ProcessState:
    """What is kept of a process between ticks."""

    pid: int
    ticks: int = -1
    stat: KernelFile | None = None
    io: KernelFile | None = None

    def close(self) -> None:
        for file in (self.stat, self.io):
            if file is not None:
                file.close()
        self.stat = self.io = None


class ProcessReader:
    """The processes of one postmaster, tick by tick. Used by one thread."""

    def __init__(self, proc: str, postmaster: int, page_size: int) -> None:
        self.postmaster = postmaster
        self.children = PostmasterChildren(proc, postmaster)
        self._proc = proc
        self._page_size = page_size
        self._known: dict[int, _ProcessState] = {}
        self._busy: set[int] = set()
        self._open: set[int] = set()
        self._last: set[int] = set()
        self._read_twice: set[int] = set()
        self._turn = 0
        self._io_denied = False

    def read(self, active: Collection[int], delayacct: int | None) -> tuple[Processes, str | None]:
        """The reading, and a note on what it lacks. Raises ProcessLookupError when the postmaster has ended.

        `delayacct` is kernel.task_delayacct: with 0 the kernel does not account waits for I/O and writes 0 instead.
        """
        children = self.children.read()
        self._forget(children)
        due = self._due(children, active)
        rows = [row for pid in sorted(due) if (row := self._process(pid, delayacct)) is not None]
        states = Counter(row.state for row in rows)
        reading = Processes(self.postmaster, rows, dict(states), len(children))
        return reading, IO_DENIED if self._io_denied else None

    def _forget(self, children: frozenset[int]) -> None:
        for pid in self._known.keys() - children - {self.postmaster}:
            self._drop(pid)

    def _due(self, children: frozenset[int], active: Collection[int]) -> set[int]:
        """Who is read now. Files stay open for who is read twice running."""
        self._turn = (self._turn + 1) % TURN_TICKS
        new = children - self._known.keys()
        in_turn = sorted(children)[self._turn :: TURN_TICKS]
        due = {self.postmaster, *new, *self._busy, *in_turn, *children.intersection(active)}
        for pid in self._open - due:
            self._release(self._known[pid])
        self._read_twice = due & self._last
        self._last = due
        return due

    def _process(self, pid: int, delayacct: int | None) -> Process | None:
        known = self._known.get(pid)
        if known is None:
            known = self._known[pid] = _ProcessState(pid)
        try:
            stat = parse_stat(self._stat(known))
        except (OSError, ValueError, IndexError):
            self._drop(pid)
            return None
        read_bytes, write_bytes = self._io(known)
        self._update_busy(known, stat)
        return Process(
            pid, stat.state, stat.start_ticks, stat.user_ticks, stat.system_ticks, stat.rss_pages * self._page_size,
            read_bytes, write_bytes, _blkio(stat, delayacct),
        )  # fmt: skip

    def _update_busy(self, known: _ProcessState, stat: ProcStat) -> None:
        """Busy is who used CPU since its last reading, runs, or waits for a disk; the first reading cannot tell."""
        ticks = stat.user_ticks + stat.system_ticks
        if ticks != known.ticks or stat.state in "RD":
            self._busy.add(known.pid)
        else:
            self._busy.discard(known.pid)
        known.ticks = ticks

    def _stat(self, known: _ProcessState) -> bytes:
        if known.stat is None:
            path = f"{self._proc}/{known.pid}/stat"
            if known.pid not in self._read_twice or len(self._open) >= MAX_OPEN_PROCESSES:
                return read_once(path, STAT_SIZE)
            known.stat = KernelFile(path)
            known.io = KernelFile(f"{self._proc}/{known.pid}/io")
            self._open.add(known.pid)
        return known.stat.read_once(STAT_SIZE)

    def _io(self, known: _ProcessState) -> tuple[int | None, int | None]:
        if self._io_denied:
            return None, None
        try:
            if known.io is not None:
                return parse_io(known.io.read_once(STAT_SIZE))
            return parse_io(read_once(f"{self._proc}/{known.pid}/io", STAT_SIZE))
        except PermissionError:
            self._io_denied = True
        except (OSError, ValueError):
            pass  # ended meanwhile, or a kernel without the file
        return None, None

    def _drop(self, pid: int) -> None:
        self._release(self._known.pop(pid))
        self._busy.discard(pid)

    def _release(self, known: _ProcessState) -> None:
        self._open.discard(known.pid)
        known.close()

    def close(self) -> None:
        """Let all descriptors go."""
        for known in self._known.values():
            self._release(known)
        self._known.clear()
        self._busy.clear()
        self.children.close()


def _blkio(stat: ProcStat, delayacct: int | None) -> int | None:
    """Ticks waited for I/O. Without the sysctl (before 5.14) accounting may be off by boot: then 0 tells nothing."""
    if delayacct == 0 or (delayacct is None and stat.blkio_ticks == 0):
        return None
    return stat.blkio_ticks
