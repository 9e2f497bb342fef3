"""How far I/O is stalled in this tick, by every sign there is; asked by the rules about I/O and about memory.

Signs, in the order in which they are told: the share of the last ten seconds in which every task with work waited (PSI,
from its total: the averages lag), a device of the server that has requests and completes none, processes of the server
that hang in the kernel, and without PSI the number of blocked tasks. A sign is a stall only where somebody feels it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from dba_console.findings.io_devices import Devices, Watched
from dba_console.findings.io_stuck import Stuck
from dba_console.findings.io_waits import places_waited_for, suffering, unfelt
from dba_console.findings.situation import Situation
from dba_console.frames.rates import pair
from dba_console.limits.io import IoLimits
from dba_console.samples import host

GAP_US = 5_000_000
"""Readings further apart (or five ticks, where those are longer) have a gap between them: what was known is not."""
FELT_US = 5_000_000
_REMEMBERED_US = 5_000_000
"""Sessions come and go between readings: those of the last five seconds count."""


class Shares:
    """Readings of a counter of stalled microseconds over the last seconds."""

    def __init__(self) -> None:
        self.points: deque[tuple[int, int]] = deque()

    def add(self, mono_us: int, total_us: int, span_us: int) -> None:
        points = self.points
        if points and (mono_us <= points[-1][0] or total_us < points[-1][1]):
            points.clear()  # read twice, or counted anew since a boot
        points.append((mono_us, total_us))
        # The reading just before the span is kept: the share is one over the whole of it.
        while len(points) > 2 and mono_us - points[1][0] >= span_us:
            points.popleft()

    def pct(self, span_s: float) -> float | None:
        """Percent of `span_s` seconds stalled, for what is not known yet as if not; None before three seconds."""
        if not self.points or self.points[-1][0] - self.points[0][0] < 2_500_000:
            return None
        (first_us, first), (last_us, last) = self.points[0], self.points[-1]
        return min(100.0, 100 * (last - first) / max(last_us - first_us, span_s * 1e6))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The signs of one tick. Seconds, processes, percent; None and empty where there is no such sign."""

    share_pct: float | None = None
    memory_pct: float | None = None
    """The same of memory: everybody waited for a page."""
    unanswered: Watched | None = None
    unanswered_s: float = 0.0
    stuck: tuple[int, ...] = ()
    """Processes that hang, without those nobody waits for."""
    stuck_s: float = 0.0
    frozen: bool = False
    """Processes hang, and no write was completed on a device of the server meanwhile."""
    blocked: int | None = None
    blocked_s: float = 0.0
    waiting: int = 0
    """Sessions that waited in two readings of the last seconds and more: one alone is a hiccup."""
    waiting_long: int = 0
    """The same in three."""

    @property
    def felt(self) -> int:
        """How many sessions or processes are held up."""
        return max(self.waiting, len(self.stuck))

    @property
    def felt_long(self) -> int:
        return max(self.waiting_long, len(self.stuck))


class StallWatch:
    """What has to be kept between ticks to tell a stall."""

    def __init__(self) -> None:
        self.io, self.memory = Shares(), Shares()
        self.devices, self.stuck = Devices(), Stuck()
        self.stall = Stall()
        self.felt_us: int | None = None
        """Monotonic time at which a stall was last felt by sessions of the server."""
        self.felt_since_us = 0
        """Monotonic time at which that began; five seconds without it are its end."""
        self._at: tuple[str, int] = ("", 0)
        self._blocked: deque[tuple[int, int]] = deque(maxlen=10)
        self._waiting: deque[tuple[int, int]] = deque(maxlen=6)

    def look(self, s: Situation) -> Stall:
        """The signs of this tick; asked twice in one it answers the same."""
        boot, last_us = self._at
        if (boot, last_us) == (s.picture.boot, s.mono_us):
            return self.stall
        gap_us = max(GAP_US, 5 * s.picture.tick_us)
        if boot != s.picture.boot or not 0 < s.mono_us - last_us <= gap_us:
            self._begin_anew()
        self._at = (s.picture.boot, s.mono_us)
        self._take_in(s)
        self.stall = self._measure(s)
        return self.stall

    def _begin_anew(self) -> None:
        self.io, self.memory = Shares(), Shares()
        self.stuck.forget()
        self.felt_us = None
        self._blocked.clear()
        self._waiting.clear()
        for one in self.devices.watched.values():
            one.disk = None
            one.steps.clear()

    def _take_in(self, s: Situation) -> None:
        picture, span_us = s.facts.picture, int(s.limits.io.window_s * 1e6)
        pressure = picture.now("host.pressure", host.Pressure) if "host.pressure" in s.read else None
        if pressure is not None:
            at_us = picture.current["host.pressure"].part.at_us
            if pressure.io_full is not None:
                self.io.add(at_us, pressure.io_full.total_us, span_us)
            if pressure.memory_full is not None:
                self.memory.add(at_us, pressure.memory_full.total_us, span_us)
        processes = picture.now("host.processes", host.Processes) if "host.processes" in s.read else None
        if processes is not None:
            self.stuck.look(processes, s.mono_us)
        disks = picture.now("host.disks", host.Disks) if "host.disks" in s.read else None
        if disks is not None:
            if "host.mounts" in s.read or not self.devices.watched:
                self.devices.place(disks, picture.now("host.mounts", host.Mounts))
            both = pair(picture, "host.disks", host.Disks)
            self.devices.look(disks, None if both is None else both.seconds, s.mono_us)
        if not self.io.points and (blocked := s.point.get("io.procs_blocked")) is not None:
            self._blocked.append((s.mono_us, int(blocked)))

    def _measure(self, s: Situation) -> Stall:
        limits = s.limits.io
        share, memory = self.io.pct(limits.window_s), self.memory.pct(limits.window_s)
        hanging = self._hanging(s.mono_us, limits)
        unanswered = next(iter(self.devices.unanswered(limits.unanswered_s, s.mono_us)), None)
        blocked_s = self._blocked_s(s, limits)
        if (share or 0) < limits.stalled_clear_pct and not hanging and unanswered is None and not blocked_s:
            if self._waiting:
                self._waiting.clear()
            return Stall(share_pct=share, memory_pct=memory)
        return self._signs(s, share, memory, hanging, unanswered, blocked_s)

    def _hanging(self, mono_us: int, limits: IoLimits) -> dict[int, int]:
        """Once one has hung long enough, those that followed it count as well."""
        if not self.stuck.since_us or not self.stuck.for_s(limits.stuck_s, mono_us):
            return {}
        return self.stuck.for_s(limits.stuck_s / 2, mono_us)

    def _signs(
        self, s: Situation, share: float | None, memory: float | None, hanging: dict[int, int],
        unanswered: Watched | None, blocked_s: float,
    ) -> Stall:  # fmt: skip
        frozen = len(hanging) >= s.limits.io.stuck_processes and self._nothing_written(s, hanging)
        felt = tuple(sorted(hanging.keys() - (set() if frozen else unfelt(s, hanging))))
        since_us = min((hanging[pid] for pid in felt), default=s.mono_us)
        waited = self._waited(s)
        stall = Stall(
            share_pct=share,
            memory_pct=memory,
            unanswered=unanswered,
            unanswered_s=0.0 if unanswered is None else (s.mono_us - unanswered.answered_us) / 1e6,
            stuck=felt,
            stuck_s=(s.mono_us - since_us) / 1e6,
            frozen=frozen,
            blocked=self._blocked[-1][1] if blocked_s else None,
            blocked_s=blocked_s,
            waiting=waited[1],
            waiting_long=waited[2],
        )
        if stall.felt >= s.limits.io.waiting_sessions:
            if self.felt_us is None or s.mono_us - self.felt_us > FELT_US:
                self.felt_since_us = s.mono_us
            self.felt_us = s.mono_us
        return stall

    def _waited(self, s: Situation) -> list[int]:
        """How many waited in each of the last readings, the most first, three at least."""
        sessions = s.facts.sessions
        if sessions is not None and "pg.activity" in s.read:
            self._waiting.append((s.mono_us, suffering(sessions.rows, sessions.now_us, s.limits.io.waiting_s)))
        counts = [count for at_us, count in self._waiting if s.mono_us - at_us <= _REMEMBERED_US]
        return sorted([*counts, 0, 0, 0], reverse=True)

    def _nothing_written(self, s: Situation, pids: Iterable[int]) -> bool:
        """Whether the devices these wait for completed no write in the time a process must hang to count."""
        known = self.devices.direct  # what stands below them may write for others
        held = set(places_waited_for(s, pids))
        waited_for = [one for one in known if held.intersection(one.place.holds)] or known
        latest = s.mono_us - int(s.limits.io.stuck_s * 1e6)
        return bool(waited_for) and all(one.wrote_us <= latest for one in waited_for)

    def _blocked_s(self, s: Situation, limits: IoLimits) -> float:
        """How long so many tasks have been blocked in every reading with as much iowait; 0 where PSI tells better."""
        if self.io.points or (s.point.get("io.iowait_pct") or 0) < limits.blocked_iowait_pct:
            return 0.0
        since_us = s.mono_us
        for at_us, count in reversed(self._blocked):
            if count < limits.blocked_processes:
                break
            since_us = at_us
        lasted = (s.mono_us - since_us) / 1e6
        return lasted if lasted >= limits.blocked_s else 0.0


def watch_of(s: Situation) -> StallWatch:
    """The one watch all rules share."""
    memo = s.memo("io-stall")
    watch: StallWatch | None = memo.get("watch")
    if watch is None:
        watch = memo["watch"] = StallWatch()
    return watch
