"""Page cache that falls while free memory rises: seen over the last half minute, and measured. Pure but for the ring.

Shared memory counts as cached in /proc/meminfo and is not page cache: a server that stops gives gigabytes of it back.
It is taken off, so a restart is no fall. Where a process needs the memory, free does not rise: that is no fall either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dba_console.findings.reclaim_cause import ReclaimCounts
from dba_console.frames.rates import delta
from dba_console.samples import host

_LOW_FREE = 0.25
"""A node with less than a quarter of the free share of the emptiest one is full."""
_ANON_SHARE = 0.5
"""Anonymous memory that grew by half of what the cache lost: somebody needed it."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading of /proc/meminfo with the one of /proc/vmstat beside it, None where that is missing."""

    mono_us: int
    wall_us: int
    memory: host.MemInfo
    vmstat: host.VmStat | None
    cached: int
    """Page cache in bytes: Cached without Shmem."""


def make_reading(memory: host.MemInfo, vmstat: host.VmStat | None, mono_us: int, wall_us: int) -> MemoryReading:
    return MemoryReading(mono_us, wall_us, memory, vmstat, memory.cached - (memory.shmem or 0))


class RecentReadings:
    """The readings of the last `span_us`. One that comes after a gap, or from another run, begins it anew."""

    def __init__(self) -> None:
        self.readings: deque[MemoryReading] = deque()
        self.highest = 0
        """Bytes of page cache when it stood highest."""
        self._boot = ""

    def add(self, tick: MemoryReading, boot: str, span_us: int, gap_us: int) -> None:
        ticks = self.readings
        if ticks and (boot != self._boot or not 0 < tick.mono_us - ticks[-1].mono_us <= gap_us):
            ticks.clear()
            self.highest = 0
        self._boot = boot
        ticks.append(tick)
        self.highest = max(self.highest, tick.cached)
        while tick.mono_us - ticks[0].mono_us > span_us:
            if ticks.popleft().cached == self.highest:
                self.highest = max(ticks, key=_cached_bytes).cached


@dataclass(frozen=True, slots=True)
class CacheFall:
    """Page cache that went, from the last moment it stood high until now."""

    began_wall_us: int
    """Host wall time at which it stood high for the last time."""
    fell: int
    """Bytes of page cache lost."""
    rose: int
    """Bytes of free memory gained, the pool of huge pages included."""
    seconds: float
    readings: tuple[MemoryReading, ...]


def find_fall(ticks: Sequence[MemoryReading], least: float, free_pct: float) -> CacheFall | None:
    """The fall that goes on or has just been: `least` bytes of cache lost, `free_pct` of them free now."""
    now = ticks[-1]
    top = max(reversed(ticks), key=_cached_bytes)  # of equals the latest: the fall begins where the plateau ends
    fell = top.cached - now.cached
    if fell < least:
        return None
    rose = now.memory.free - top.memory.free + _huge_page_bytes(now.memory) - _huge_page_bytes(top.memory)
    if rose < fell * free_pct / 100:
        return None
    span = tuple(tick for tick in ticks if tick.mono_us >= top.mono_us)
    return CacheFall(top.wall_us, fell, rose, (now.mono_us - top.mono_us) / 1e6, span)


def _cached_bytes(tick: MemoryReading) -> int:
    return tick.cached


def _huge_page_bytes(memory: host.MemInfo) -> int:
    return (memory.huge_total or 0) * (memory.huge_page_size or 0)


def count_reclaim(
    fall: CacheFall, settings: host.HostSettings | None, before: host.HostSettings | None = None
) -> ReclaimCounts:
    """What was counted in the readings in which the cache fell; what was taken and read again beside that is churn."""
    falling = [(old, new) for old, new in pairwise(fall.readings) if new.cached < old.cached]
    first, last = fall.readings[0].memory, fall.readings[-1].memory
    page = _page_size(fall.readings)

    def pages(name: str) -> int | None:
        count = _sum_counter(falling, name)
        return None if count is None else count * page

    return ReclaimCounts(
        fell=sum(old.cached - new.cached for old, new in falling),
        # Counted when the dropping is done (fs/drop_caches.c): the reading after the fall may be the one that has it.
        dropped=_sum_counter(list(pairwise(fall.readings)), "drop_pagecache"),
        file=pages("pgsteal_file"),
        kswapd=pages("pgsteal_kswapd"),
        direct=pages("pgsteal_direct"),
        khugepaged=pages("pgsteal_khugepaged"),
        proactive=pages("pgsteal_proactive"),
        zone=_sum_counter(falling, "zone_reclaim_success"),
        alloc_stalls=_sum_counter(falling, "allocstall"),
        compact_stalls=_sum_counter(falling, "compact_stall"),
        huge_pages=max(0, _huge_page_bytes(last) - _huge_page_bytes(first)),
        full_node=full_node(settings, before),
        short=_was_short(fall, settings),
    )


def _sum_counter(pairs: Sequence[tuple[MemoryReading, MemoryReading]], name: str) -> int | None:
    """Sum over the pairs; None where the kernel does not count it, or the counter began anew."""
    total = 0
    for old, new in pairs:
        if old.vmstat is None or new.vmstat is None:
            return None
        moved = delta(getattr(new.vmstat, name), getattr(old.vmstat, name))
        if moved is None:
            return None
        total += int(moved)
    return total


def _page_size(ticks: Sequence[MemoryReading]) -> int:
    return next((tick.vmstat.page_size for tick in ticks if tick.vmstat is not None), 4096)


def high_watermark(total: int, settings: host.HostSettings | None) -> int | None:
    """Bytes of free memory at which kswapd stops, about: min_free_kbytes and twice the distance between marks.

    The distance is a quarter of the minimum or watermark_scale_factor of memory, in units of 1/10000, whichever is
    more (mm/page_alloc.c, __setup_per_zone_wmarks). None where the minimum is not known.
    """
    if settings is None or settings.min_free_kbytes is None:
        return None
    least = settings.min_free_kbytes << 10
    return least + 2 * max(least // 4, total * (settings.watermark_scale_factor or 0) // 10_000)


def _was_short(fall: CacheFall, settings: host.HostSettings | None) -> bool | None:
    """Whether reclaim was needed: programs took the memory, or free memory is no more than kswapd is meant to keep."""
    first, last = fall.readings[0].memory, fall.readings[-1].memory
    if last.anon is not None and first.anon is not None and last.anon - first.anon >= fall.fell * _ANON_SHARE:
        return True
    high = high_watermark(last.total, settings)
    return None if high is None else last.free <= 2 * high


def full_node(now: host.HostSettings | None, before: host.HostSettings | None) -> int | None:
    """The node whose requests went to others because it has far less free memory than they have."""
    if now is None or before is None or len(now.numa) < 2:
        return None
    shares = {node.node: node.free / node.total for node in now.numa if node.total > 0}
    if len(shares) < 2:
        return None
    emptiest = max(shares.values())
    old = {node.node: node for node in before.numa}
    for node in now.numa:
        known = old.get(node.node)
        if known is None or shares.get(node.node, 1.0) >= emptiest * _LOW_FREE:
            continue
        if delta(node.numa_foreign, known.numa_foreign):
            return node.node
    return None
