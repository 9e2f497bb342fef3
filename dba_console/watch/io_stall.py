"""How far I/O is stalled in this tick; used by the rules about I/O and about memory.

Signs, in the order they are shown: the share of the last ten seconds in which every task with work waited (PSI, from
its total: the averages lag), a device of the server with requests in flight that completes none, server processes that
hang in the kernel, and without PSI the number of blocked tasks. A sign counts as a stall only if sessions wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dba_console.watch.device_history import (
    DeviceHistory,
    ServerDevices,
    awaited_storage,
    background_or_bulk,
    count_waiting_sessions,
)
from dba_console.watch.findings.rule import RuleContext
from dba_console.watch.findings.thresholds import Computed, Judgement, Measured, Ordered, RuleThresholds
from dba_console.watch.frames.rates import pair
from dba_console.watch.samples import host


class StallLimits(RuleThresholds, frozen=True):
    """`[findings.io]`: when I/O is stalled."""

    family = "io"

    stalled_pct: Judgement[float] = 35.0
    """I/O is stalled from this percentage of `window_s` in which all tasks with work waited for I/O (PSI io full)."""
    stalled_clear_pct: Judgement[float] = 20.0
    """The finding about stalled I/O clears below this percentage."""
    critical_pct: Measured[float] = 60.0
    """Critical from this percentage, with `critical_sessions`: most of the time is lost, as in one incident (61 %)."""
    window_s: Computed[float] = 10.0
    """Averaging time of the percentage: the kernel's shortest, but computed from its total, which does not lag."""
    waiting_sessions: Judgement[int] = 2
    """Sessions whose statement waits for I/O and has run for `waiting_s`: without them a busy disk is not a stall."""
    critical_sessions: Judgement[int] = 5
    """Number of sessions that must wait for I/O in three readings within five seconds for critical."""
    waiting_s: Judgement[float] = 1.0
    """How long a statement must have run: a hundred times one of milliseconds; in one incident it was 30 s."""
    stuck_processes: Judgement[int] = 2
    """I/O is stalled if this many processes of the server hang in the kernel without progress for `stuck_s`."""
    stuck_s: Judgement[float] = 2.5
    """How long they must hang: slightly less than three readings one second apart; in one incident it was 28 s."""
    unanswered_s: Judgement[float] = 2.5
    """I/O is stalled if a device has requests in flight and completes none for this long."""
    blocked_processes: Judgement[int] = 4
    """Without PSI: I/O is stalled if this many tasks are blocked in every reading of `blocked_s`, at
    `blocked_iowait_pct`."""
    blocked_s: Judgement[float] = 2.5
    """How long `blocked_processes` must be blocked, as `stuck_s`."""
    blocked_iowait_pct: Judgement[float] = 20.0
    """Minimum iowait as a percentage of all CPU time: half a CPU of two, and less on more."""

    @classmethod
    def in_order(cls) -> Ordered:
        return (
            (cls.stalled_clear_pct, cls.stalled_pct, cls.critical_pct),
            (cls.waiting_sessions, cls.critical_sessions),
        )


# Server processes that hang in the kernel: uninterruptible in every reading, without progress in between.
#
# A frozen file system or a dead NFS server shows on no device and not always in PSI (a writer to a frozen file system
# waits for a lock, invisible to mm/vmscan and block/); it shows here.

UNINTERRUPTIBLE = "D"
_WorkCounters = tuple[int, int, int, int | None, int | None]


def _work_counters(row: host.Process) -> _WorkCounters:
    return row.start_ticks, row.user_ticks, row.system_ticks, row.read_bytes, row.write_bytes


@dataclass(slots=True)
class HungProcesses:
    """Monotonic time since when each process has hung."""

    since_us: dict[int, int] = field(default_factory=dict)
    _counters: dict[int, _WorkCounters] = field(default_factory=dict)

    def update(self, processes: host.Processes, mono_us: int) -> None:
        """Add a reading. A process missing in it is not known to hang."""
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
        """Clear all after a gap: what happened in between is not known."""
        self.since_us, self._counters = {}, {}

    def hung_for(self, seconds: float, mono_us: int) -> dict[int, int]:
        """Return the processes that have hung for at least `seconds`."""
        latest = mono_us - int(seconds * 1e6)
        return {pid: since_us for pid, since_us in self.since_us.items() if since_us <= latest}


GAP_US = 5_000_000
"""Readings further apart (or five ticks, if longer) are a gap, and earlier state is dropped."""
AFFECTED_US = 5_000_000
_REMEMBERED_US = 5_000_000
"""Waiting sessions vary between readings: those of the last five seconds count."""


class StallShare:
    """Readings of a counter of stalled microseconds over the last seconds."""

    def __init__(self) -> None:
        self.points: deque[tuple[int, int]] = deque()

    def add(self, mono_us: int, total_us: int, span_us: int) -> None:
        points = self.points
        if points and (mono_us <= points[-1][0] or total_us < points[-1][1]):
            points.clear()  # read twice, or restarted by a boot
        points.append((mono_us, total_us))
        # The reading just before the span is kept: the share is one over the whole of it.
        while len(points) > 2 and mono_us - points[1][0] >= span_us:
            points.popleft()

    def pct(self, span_s: float) -> float | None:
        """Return the percentage of `span_s` seconds stalled, unknown time counted as not; None before three seconds."""
        if not self.points or self.points[-1][0] - self.points[0][0] < 2_500_000:
            return None
        (first_us, first), (last_us, last) = self.points[0], self.points[-1]
        return min(100.0, 100 * (last - first) / max(last_us - first_us, span_s * 1e6))


@dataclass(frozen=True, slots=True, kw_only=True)
class IoStall:
    """The signs of one tick, in seconds, processes and percent; None and empty if absent."""

    share_pct: float | None = None
    memory_pct: float | None = None
    """The same for memory: all tasks waited for a page."""
    unresponsive: DeviceHistory | None = None
    unresponsive_s: float = 0.0
    hung: tuple[int, ...] = ()
    """Hung processes, without those nothing waits for."""
    hung_s: float = 0.0
    frozen: bool = False
    """Processes hang, and no device of the server completed a write meanwhile."""
    blocked: int | None = None
    blocked_s: float = 0.0
    waiting: int = 0
    """Sessions that waited in at least two recent readings: one alone is a hiccup."""
    waiting_long: int = 0
    """The same in at least three."""

    @property
    def affected(self) -> int:
        """Number of sessions or processes that wait."""
        return max(self.waiting, len(self.hung))

    @property
    def affected_long(self) -> int:
        return max(self.waiting_long, len(self.hung))


class StallMonitor:
    """State kept between ticks to detect a stall."""

    def __init__(self) -> None:
        self.io, self.memory = StallShare(), StallShare()
        self.devices, self.hung = ServerDevices(), HungProcesses()
        self.stall = IoStall()
        self.affected_us: int | None = None
        """Monotonic time when sessions of the server last waited in a stall."""
        self.affected_since_us = 0
        """Monotonic time when that began; it ends after five seconds without."""
        self._at: tuple[str, int] = ("", 0)
        self._blocked: deque[tuple[int, int]] = deque(maxlen=10)
        self._recent_waiting: deque[tuple[int, int]] = deque(maxlen=6)

    def update(self, s: RuleContext) -> IoStall:
        """Return the signs of this tick; a second call in the tick returns the same."""
        boot, last_us = self._at
        if (boot, last_us) == (s.picture.boot, s.mono_us):
            return self.stall
        gap_us = max(GAP_US, 5 * s.picture.tick_us)
        if boot != s.picture.boot or not 0 < s.mono_us - last_us <= gap_us:
            self._reset()
        self._at = (s.picture.boot, s.mono_us)
        self._read_parts(s)
        self.stall = self._measure(s)
        return self.stall

    def _reset(self) -> None:
        self.io, self.memory = StallShare(), StallShare()
        self.hung.forget()
        self.affected_us = None
        self._blocked.clear()
        self._recent_waiting.clear()
        for one in self.devices.histories.values():
            one.disk = None
            one.intervals.clear()

    def _read_parts(self, s: RuleContext) -> None:
        picture, span_us = s.facts.picture, int(s.limits.of(StallLimits).window_s * 1e6)
        pressure = picture.now("host.pressure", host.Pressure) if "host.pressure" in s.read else None
        if pressure is not None:
            at_us = picture.current["host.pressure"].part.at_us
            if pressure.io_full is not None:
                self.io.add(at_us, pressure.io_full.total_us, span_us)
            if pressure.memory_full is not None:
                self.memory.add(at_us, pressure.memory_full.total_us, span_us)
        processes = picture.now("host.processes", host.Processes) if "host.processes" in s.read else None
        if processes is not None:
            self.hung.update(processes, s.mono_us)
        disks = picture.now("host.disks", host.Disks) if "host.disks" in s.read else None
        if disks is not None:
            if "host.mounts" in s.read or not self.devices.histories:
                self.devices.assign(disks, picture.now("host.mounts", host.Mounts))
            both = pair(picture, "host.disks", host.Disks)
            self.devices.update(disks, None if both is None else both.seconds, s.mono_us)
        if not self.io.points and (blocked := s.point.get("io.procs_blocked")) is not None:
            self._blocked.append((s.mono_us, int(blocked)))

    def _measure(self, s: RuleContext) -> IoStall:
        limits = s.limits.of(StallLimits)
        share, memory = self.io.pct(limits.window_s), self.memory.pct(limits.window_s)
        hanging = self._hanging(s.mono_us, limits)
        unanswered = next(iter(self.devices.find_unresponsive(limits.unanswered_s, s.mono_us)), None)
        blocked_s = self._blocked_s(s, limits)
        if (share or 0) < limits.stalled_clear_pct and not hanging and unanswered is None and not blocked_s:
            if self._recent_waiting:
                self._recent_waiting.clear()
            return IoStall(share_pct=share, memory_pct=memory)
        return self._build_stall(s, share, memory, hanging, unanswered, blocked_s)

    def _hanging(self, mono_us: int, limits: StallLimits) -> dict[int, int]:
        """Return hung processes; once one has hung long enough, those that followed count as well."""
        if not self.hung.since_us or not self.hung.hung_for(limits.stuck_s, mono_us):
            return {}
        return self.hung.hung_for(limits.stuck_s / 2, mono_us)

    def _build_stall(
        self, s: RuleContext, share: float | None, memory: float | None, hanging: dict[int, int],
        unanswered: DeviceHistory | None, blocked_s: float,
    ) -> IoStall:  # fmt: skip
        frozen = len(hanging) >= s.limits.of(StallLimits).stuck_processes and self._nothing_written(s, hanging)
        affected = tuple(sorted(hanging.keys() - (set() if frozen else background_or_bulk(s, hanging))))
        since_us = min((hanging[pid] for pid in affected), default=s.mono_us)
        waited = self._waiting_counts(s)
        stall = IoStall(
            share_pct=share,
            memory_pct=memory,
            unresponsive=unanswered,
            unresponsive_s=0.0 if unanswered is None else (s.mono_us - unanswered.answered_us) / 1e6,
            hung=affected,
            hung_s=(s.mono_us - since_us) / 1e6,
            frozen=frozen,
            blocked=self._blocked[-1][1] if blocked_s else None,
            blocked_s=blocked_s,
            waiting=waited[1],
            waiting_long=waited[2],
        )
        if stall.affected >= s.limits.of(StallLimits).waiting_sessions:
            if self.affected_us is None or s.mono_us - self.affected_us > AFFECTED_US:
                self.affected_since_us = s.mono_us
            self.affected_us = s.mono_us
        return stall

    def _waiting_counts(self, s: RuleContext) -> list[int]:
        """Return the waiting sessions of each recent reading, highest first, padded to three."""
        sessions = s.facts.sessions
        if sessions is not None and "pg.activity" in s.read:
            self._recent_waiting.append(
                (s.mono_us, count_waiting_sessions(sessions.rows, sessions.now_us, s.limits.of(StallLimits).waiting_s))
            )
        counts = [count for at_us, count in self._recent_waiting if s.mono_us - at_us <= _REMEMBERED_US]
        return sorted([*counts, 0, 0, 0], reverse=True)

    def _nothing_written(self, s: RuleContext, pids: Iterable[int]) -> bool:
        """Whether the awaited devices completed no write in the time a process must hang to count."""
        known = self.devices.with_file_system  # underlying devices may write for others
        held = set(awaited_storage(s, pids))
        waited_for = [one for one in known if held.intersection(one.placement.holds)] or known
        latest = s.mono_us - int(s.limits.of(StallLimits).stuck_s * 1e6)
        return bool(waited_for) and all(one.wrote_us <= latest for one in waited_for)

    def _blocked_s(self, s: RuleContext, limits: StallLimits) -> float:
        """Return how long enough tasks have been blocked in every reading with high iowait; 0 if PSI is available."""
        if self.io.points or (s.point.get("io.iowait_pct") or 0) < limits.blocked_iowait_pct:
            return 0.0
        since_us = s.mono_us
        for at_us, count in reversed(self._blocked):
            if count < limits.blocked_processes:
                break
            since_us = at_us
        lasted = (s.mono_us - since_us) / 1e6
        return lasted if lasted >= limits.blocked_s else 0.0
