"""The falls of page cache of the last minutes, each with its cause: kept for the rules about memory."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from dba_console.findings.reclaim import Fall, Ring, find_fall, taken_in, tick_of
from dba_console.findings.reclaim_cause import Cause, Taken, cause_of
from dba_console.findings.situation import Situation
from dba_console.frames.rates import delta
from dba_console.limits.memory import MemoryLimits
from dba_console.samples import host

GAP_US = 5_000_000
ONE_FALL_US = 10_000_000
"""Seen again within ten seconds it is the same fall."""
REMEMBERED_US = 600_000_000
"""What a fall costs afterwards is counted for ten minutes."""


@dataclass(slots=True)
class Episode:
    """A fall from its first reading to its last, as it stood when most was lost."""

    begun_us: int
    """Host wall time."""
    fall: Fall
    taken: Taken
    cause: Cause
    began_us: int
    """Monotonic times: when it began, and when it was last seen."""
    seen_us: int
    read_before: float | None
    """Bytes per second read in the minute before, the median; None where unknown."""


@dataclass(slots=True)
class Drop:
    """Somebody wrote to drop_caches, `times` times since `begun_us`; what the cache lost with it, in bytes."""

    begun_us: int
    seen_us: int
    times: int
    fell: int
    rose: int


class ReclaimWatch:
    """What has to be kept between ticks to tell a fall and its cause."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.episode: Episode | None = None
        """The newest fall, also when it is over; forgotten after ten minutes."""
        self.drop: Drop | None = None
        self.falling = False
        """Whether the fall is seen in this tick."""
        self._at: tuple[str, int] = ("", 0)

    def look(self, s: Situation) -> Episode | None:
        """The fall seen in this tick, None where there is none; asked twice in one tick it answers the same."""
        if self._at != (s.picture.boot, s.mono_us):
            if self._at[0] != s.picture.boot:
                self.episode = self.drop = None
            self._at = (s.picture.boot, s.mono_us)
            self.falling = self._take_in(s)
        return self.episode if self.falling else None

    def _take_in(self, s: Situation) -> bool:
        if "host.memory" not in s.read:
            return self.falling
        picture = s.facts.picture
        memory = picture.now("host.memory", host.Memory)
        if memory is None:
            return False
        vmstat = picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
        limits = s.limits.memory
        tick = tick_of(memory, vmstat, s.mono_us, s.now_us)
        self.ring.add(tick, s.picture.boot, int(limits.window_s * 1e6), max(GAP_US, 5 * picture.tick_us))
        self._dropped(s)
        self._forget(s.mono_us)
        least = least_fall(memory.total, limits)
        if self.ring.highest - tick.cached < least:
            return False
        fall = find_fall(self.ring.ticks, least, limits.free_pct)
        if fall is not None:
            self._keep(s, fall)
        return fall is not None

    def _keep(self, s: Situation, fall: Fall) -> None:
        known = self.episode
        now = s.facts.picture.now("host.settings", host.HostSettings)
        before = s.facts.picture.before("host.settings", host.HostSettings)
        goes_on = known is not None and s.mono_us - known.seen_us <= ONE_FALL_US
        if known is not None and goes_on:
            known.seen_us = s.mono_us
            counted = self.drop is not None and self.drop.seen_us == s.mono_us
            if fall.fell < known.fall.fell and fall.ticks[-1].cached >= fall.ticks[-2].cached and not counted:
                return  # it comes back: what was lost at most is what is told
            known.fall, known.taken = fall, taken_in(fall, now, before)
            known.cause = cause_of(known.taken)
            return
        taken = taken_in(fall, now, before)
        read = _usual_reads(s, fall.begun_us)
        began_us = fall.ticks[0].mono_us
        self.episode = Episode(fall.begun_us, fall, taken, cause_of(taken), began_us, s.mono_us, read)

    def _dropped(self, s: Situation) -> None:
        """A write to drop_caches is one whatever the cache lost by it, and whatever was read again meanwhile."""
        ticks = self.ring.ticks
        if len(ticks) < 2 or (now := ticks[-1].vmstat) is None or (old := ticks[-2].vmstat) is None:
            return
        times = int(delta(now.drop_pagecache, old.drop_pagecache) or 0)
        if not times:
            return
        recent = [tick for tick in ticks if s.mono_us - tick.mono_us <= GAP_US]
        top = max(recent, key=lambda tick: tick.cached)
        fell, rose = top.cached - ticks[-1].cached, ticks[-1].memory.free - top.memory.free
        if self.drop is None:
            self.drop = Drop(s.now_us, s.mono_us, times, fell, rose)
        else:
            self.drop.seen_us, self.drop.fell, self.drop.rose = s.mono_us, max(fell, self.drop.fell), rose
            self.drop.times += times

    def _forget(self, mono_us: int) -> None:
        if self.episode is not None and mono_us - self.episode.seen_us > REMEMBERED_US:
            self.episode = None
        if self.drop is not None and mono_us - self.drop.seen_us > REMEMBERED_US:
            self.drop = None


def least_fall(total: int, limits: MemoryLimits) -> float:
    """Bytes of page cache that must go to count as a fall, on a host with `total` bytes of memory."""
    return min(max(limits.fell_least_bytes, total * limits.fell_pct / 100), max(limits.fell_most_bytes, 0))


def _usual_reads(s: Situation, until_us: int) -> float | None:
    values = [
        value for at_us, value in s.history.series("io.read_bytes_per_s") if until_us - 60_000_000 <= at_us <= until_us
    ]
    return median(values) if values else None


def watch_of(s: Situation) -> ReclaimWatch:
    """The one watch all rules about memory share."""
    memo = s.memo("reclaim")
    watch: ReclaimWatch | None = memo.get("watch")
    if watch is None:
        watch = memo["watch"] = ReclaimWatch()
    return watch
