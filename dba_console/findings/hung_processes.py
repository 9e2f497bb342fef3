"""Processes of the server that hang in the kernel: uninterruptible in every reading, and nothing done in between.

A frozen file system or a dead NFS server shows in no device and not always in the kernel's pressure accounts (a writer
to a frozen file system waits for a lock, mm/vmscan and block/ see nothing of it); it shows here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dba_console.samples import host

UNINTERRUPTIBLE = "D"
_WorkCounters = tuple[int, int, int, int | None, int | None]


def _work_counters(row: host.Process) -> _WorkCounters:
    return row.start_ticks, row.user_ticks, row.system_ticks, row.read_bytes, row.write_bytes


@dataclass(slots=True)
class HungProcesses:
    """Since when each process has hung, on the monotonic clock."""

    since_us: dict[int, int] = field(default_factory=dict)
    _counters: dict[int, _WorkCounters] = field(default_factory=dict)

    def update(self, processes: host.Processes, mono_us: int) -> None:
        """Take in one reading. A process that was not read in it is not known to hang."""
        if not processes.states.get(UNINTERRUPTIBLE):
            if self.since_us:
                self.forget()
            return
        before, done = self.since_us, self._counters
        self.since_us, self._counters = {}, {}
        for row in processes.rows:
            if row.state == UNINTERRUPTIBLE:
                now = self._counters[row.pid] = _work_counters(row)
                self.since_us[row.pid] = before[row.pid] if done.get(row.pid) == now else mono_us

    def forget(self) -> None:
        """After a gap nothing is known of what was in between."""
        self.since_us, self._counters = {}, {}

    def hung_for(self, seconds: float, mono_us: int) -> dict[int, int]:
        """Those that have hung at least so long."""
        latest = mono_us - int(seconds * 1e6)
        return {pid: since_us for pid, since_us in self.since_us.items() if since_us <= latest}
