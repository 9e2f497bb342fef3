"""The falls of page cache of the last minutes, each with its cause: kept for the rules about memory."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from dba_console.findings.reclaim_cause import ReclaimCause, ReclaimCounts, find_reclaim_cause
from dba_console.findings.reclaim_measurement import CacheFall, RecentReadings, count_reclaim, find_fall, make_reading
from dba_console.findings.rule_context import RuleContext
from dba_console.frames.rates import delta
from dba_console.limits.memory import MemoryLimits
from dba_console.samples import host

GAP_US = 5_000_000
ONE_FALL_US = 10_000_000
"""Seen again within ten seconds it is the same fall."""
REMEMBERED_US = 600_000_000
"""What a fall costs afterwards is counted for ten minutes."""


@dataclass(slots=True)
class CacheFallEpisode:
    """A fall from its first reading to its last, as it stood when most was lost."""

    began_wall_us: int
    """Host wall time."""
    fall: CacheFall
    counts: ReclaimCounts
    cause: ReclaimCause
    began_mono_us: int
    """Monotonic times: when it began, and when it was last seen."""
    seen_mono_us: int
    read_before: float | None
    """Bytes per second read in the minute before, the median; None where unknown."""


@dataclass(slots=True)
class CacheDrop:
    """Somebody wrote to drop_caches, `times` times since `began_wall_us`; what the cache lost with it, in bytes."""

    began_wall_us: int
    seen_mono_us: int
    times: int
    fell: int
    rose: int


class ReclaimMonitor:
    """What has to be kept between ticks to tell a fall and its cause."""

    def __init__(self) -> None:
        self.recent = RecentReadings()
        self.episode: CacheFallEpisode | None = None
        """The newest fall, also when it is over; forgotten after ten minutes."""
        self.drop: CacheDrop | None = None
        self.falling = False
        """Whether the fall is seen in this tick."""
        self._at: tuple[str, int] = ("", 0)

    def update(self, s: RuleContext) -> CacheFallEpisode | None:
        """The fall seen in this tick, None where there is none; asked twice in one tick it answers the same."""
        if self._at != (s.picture.boot, s.mono_us):
            if self._at[0] != s.picture.boot:
                self.episode = self.drop = None
            self._at = (s.picture.boot, s.mono_us)
            self.falling = self._read_memory(s)
        return self.episode if self.falling else None

    def _read_memory(self, s: RuleContext) -> bool:
        if "host.memory" not in s.read:
            return self.falling
        picture = s.facts.picture
        memory = picture.now("host.memory", host.MemInfo)
        if memory is None:
            return False
        vmstat = picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
        limits = s.limits.memory
        tick = make_reading(memory, vmstat, s.mono_us, s.now_us)
        self.recent.add(tick, s.picture.boot, int(limits.window_s * 1e6), max(GAP_US, 5 * picture.tick_us))
        self._record_drop(s)
        self._forget_old(s.mono_us)
        least = least_fall(memory.total, limits)
        if self.recent.highest - tick.cached < least:
            return False
        fall = find_fall(self.recent.readings, least, limits.free_pct)
        if fall is not None:
            self._record_fall(s, fall)
        return fall is not None

    def _record_fall(self, s: RuleContext, fall: CacheFall) -> None:
        known = self.episode
        now = s.facts.picture.now("host.settings", host.HostSettings)
        before = s.facts.picture.before("host.settings", host.HostSettings)
        goes_on = known is not None and s.mono_us - known.seen_mono_us <= ONE_FALL_US
        if known is not None and goes_on:
            known.seen_mono_us = s.mono_us
            counted = self.drop is not None and self.drop.seen_mono_us == s.mono_us
            if fall.fell < known.fall.fell and fall.readings[-1].cached >= fall.readings[-2].cached and not counted:
                return  # it comes back: what was lost at most is what is told
            known.fall, known.counts = fall, count_reclaim(fall, now, before)
            known.cause = find_reclaim_cause(known.counts)
            return
        taken = count_reclaim(fall, now, before)
        read = _typical_read_rate(s, fall.began_wall_us)
        began_us = fall.readings[0].mono_us
        self.episode = CacheFallEpisode(
            fall.began_wall_us, fall, taken, find_reclaim_cause(taken), began_us, s.mono_us, read
        )

    def _record_drop(self, s: RuleContext) -> None:
        """A write to drop_caches is one whatever the cache lost by it, and whatever was read again meanwhile."""
        ticks = self.recent.readings
        if len(ticks) < 2 or (now := ticks[-1].vmstat) is None or (old := ticks[-2].vmstat) is None:
            return
        times = int(delta(now.drop_pagecache, old.drop_pagecache) or 0)
        if not times:
            return
        recent = [tick for tick in ticks if s.mono_us - tick.mono_us <= GAP_US]
        top = max(recent, key=lambda tick: tick.cached)
        fell, rose = top.cached - ticks[-1].cached, ticks[-1].memory.free - top.memory.free
        if self.drop is None:
            self.drop = CacheDrop(s.now_us, s.mono_us, times, fell, rose)
        else:
            self.drop.seen_mono_us, self.drop.fell, self.drop.rose = s.mono_us, max(fell, self.drop.fell), rose
            self.drop.times += times

    def _forget_old(self, mono_us: int) -> None:
        if self.episode is not None and mono_us - self.episode.seen_mono_us > REMEMBERED_US:
            self.episode = None
        if self.drop is not None and mono_us - self.drop.seen_mono_us > REMEMBERED_US:
            self.drop = None


def least_fall(total: int, limits: MemoryLimits) -> float:
    """Bytes of page cache that must go to count as a fall, on a host with `total` bytes of memory."""
    return min(max(limits.fell_least_bytes, total * limits.fell_pct / 100), max(limits.fell_most_bytes, 0))


def _typical_read_rate(s: RuleContext, until_us: int) -> float | None:
    values = [
        value for at_us, value in s.history.series("io.read_bytes_per_s") if until_us - 60_000_000 <= at_us <= until_us
    ]
    return median(values) if values else None


def reclaim_monitor(s: RuleContext) -> ReclaimMonitor:
    """The one watch all rules about memory share."""
    memo = s.memo("reclaim")
    watch: ReclaimMonitor | None = memo.get("watch")
    if watch is None:
        watch = memo["watch"] = ReclaimMonitor()
    return watch
