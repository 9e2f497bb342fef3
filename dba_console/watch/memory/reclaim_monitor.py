"""Falls of the page cache in the last minutes, with their causes; kept for the rules about memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from dba_console.watch.findings.rule import RuleContext
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import delta
from dba_console.watch.samples import host


class CacheFallLimits(RuleThresholds, frozen=True):
    """`[findings.memory]`: what a fall of the page cache is. Percentages of memory are of MemTotal."""

    family = "memory"

    fell_pct: Judgement[float] = 3.0
    """Loss of page cache within `window_s` that counts as a fall, between the bounds `fell_least_bytes` and
    `fell_most_bytes`."""
    fell_least_bytes: Judgement[int] = 512 * 1024**2
    """A smaller loss never counts as a fall, on a small host."""
    fell_most_bytes: Judgement[int] = 1024**3
    """A loss of this size always counts as a fall if I/O stalls at the same time, on a big host."""
    free_pct: Judgement[float] = 60.0
    """Percentage of the loss that free memory must have gained; otherwise the memory was needed."""
    window_s: Judgement[float] = 30.0
    """Time in which the loss is measured; of longer reclaim the last half minute."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.fell_least_bytes, cls.fell_most_bytes),)


# The cause of a fall: a decision table over the kernel's counters while the cache fell. Pure.
#
# Every page that left the cache was dropped on request, freed with its file, or reclaimed; each of the few actors that
# reclaim has its own counter. The largest part names the cause. pgsteal_file counts all reclaim of file pages, the
# counters by actor leave out reclaim for a memory cgroup's limit (mm/vmscan.c, shrink_inactive_list:
# `if (!cgroup_reclaim(sc))`), so the difference is the cgroups'.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimCounts:
    """What was counted while page cache fell, in bytes or events; None if this kernel does not count it."""

    fell: int
    """Bytes by which the cache fell, over the readings in which it fell."""
    dropped: int | None = None
    """Number of writes to drop_caches."""
    file: int | None = None
    """Bytes of file pages reclaimed, by all actors."""
    kswapd: int | None = None
    direct: int | None = None
    khugepaged: int | None = None
    proactive: int | None = None
    zone: int | None = None
    """Times a node reclaimed its own pages instead of taking another node's (vm.zone_reclaim_mode)."""
    alloc_stalls: int | None = None
    compact_stalls: int | None = None
    huge_pages: int = 0
    """Bytes by which the pool of huge pages grew."""
    full_node: int | None = None
    """A node that has far less free memory than the others, and sent its requests to them."""
    short: bool | None = None
    """Memory was short when it began; None if not known."""


@dataclass(frozen=True, slots=True)
class ReclaimCause:
    """`name` for the evidence, `text` for the sentence; `reclaimed` False if the pages were freed, not reclaimed."""

    name: str
    text: str
    reclaimed: bool
    advice: str


DROPPED = ReclaimCause(
    "drop_caches", "a process wrote drop_caches", True,
    "dmesg names the process that wrote drop_caches, unless it suppressed that message; check cron.",
)  # fmt: skip
FREED = ReclaimCause(
    "file freed", "a file was freed", False,
    "A large file was truncated or removed: a dropped table, an old backup, a file system unmounted.",
)  # fmt: skip
FREED_OR_CGROUP = ReclaimCause(
    "file freed or cgroup", "a file was freed, or a memory cgroup's limit", False,
    "This kernel counts cgroup reclaim and freed files as one: check memory.failcnt of the groups.",
)  # fmt: skip
CGROUP = ReclaimCause(
    "cgroup", "a memory cgroup's limit", True,
    "Check memory.events (high, max) and memory.max of the control groups, the server's unit first.",
)  # fmt: skip
KSWAPD = ReclaimCause(
    "kswapd overshoot", "kswapd, no shortage", True,
    "The kernel freed far more than it needed: vm.watermark_boost_factor=0 stops reclaim after fragmentation; "
    "raise vm.watermark_scale_factor in small steps.",
)  # fmt: skip
KSWAPD_SHORT = ReclaimCause(
    "kswapd", "kswapd, memory was short", True, "Check which process grew and displaced the cache."
)
KSWAPD_UNKNOWN = ReclaimCause("kswapd", "kswapd", True, "Check vm.min_free_kbytes and vm.watermark_scale_factor.")
ZONE = ReclaimCause(
    "zone_reclaim_mode", "zone_reclaim_mode", True,
    "Set vm.zone_reclaim_mode=0: a node reclaims its own cache while others have memory free.",
)  # fmt: skip
DIRECT = ReclaimCause(
    "direct reclaim", "direct reclaim", True,
    "Processes reclaim memory themselves before they get a page: raise vm.watermark_scale_factor.",
)  # fmt: skip
COMPACTION = ReclaimCause(
    "compaction", "compaction for huge pages", True,
    "Set transparent_hugepage/defrag to madvise, or transparent huge pages to never.",
)  # fmt: skip
PROACTIVE = ReclaimCause(
    "memory.reclaim", "memory.reclaim by a program", True,
    "A program writes to memory.reclaim of a control group: check for a memory tiering or container agent.",
)  # fmt: skip
HUGE_PAGES = ReclaimCause(
    "huge pages", "the pool of huge pages grew", True, "vm.nr_hugepages was raised; its pages are reserved."
)
UNKNOWN = ReclaimCause("unknown", "cause not known", True, "This kernel does not count who reclaims memory.")


def find_reclaim_cause(counts: ReclaimCounts) -> ReclaimCause:
    """Return the cause that explains most of the fall."""
    parts = _bytes_by_actor(counts)
    if not parts:
        return DROPPED if counts.dropped else UNKNOWN
    if counts.huge_pages >= counts.fell / 2:
        return HUGE_PAGES
    name = max(parts, key=parts.__getitem__)
    match name:
        case "freed" if counts.dropped:
            return DROPPED
        case "freed":
            return FREED if counts.file is not None else FREED_OR_CGROUP
        case "cgroup":
            return CGROUP
        case "proactive":
            return PROACTIVE
        case "khugepaged":
            return COMPACTION
    if counts.zone:
        return ZONE
    if counts.full_node is not None:
        return _numa_cause(counts.full_node)
    return _direct_cause(counts) if name == "direct" else _kswapd_cause(counts)


def _bytes_by_actor(counts: ReclaimCounts) -> dict[str, int]:
    """Return bytes by destination; empty if reclaim is not counted at all."""
    actors = {
        name: value
        for name, value in (
            ("kswapd", counts.kswapd), ("direct", counts.direct),
            ("khugepaged", counts.khugepaged), ("proactive", counts.proactive),
        )
        if value is not None
    }  # fmt: skip
    named = sum(actors.values())
    if counts.file is None:
        # Before 5.8 nothing counts all reclaim: the part of no actor was a cgroup's, or freed.
        return {"freed": counts.fell - named, **actors} if actors else {}
    cgroup = {"cgroup": counts.file - named} if actors else {}
    return {"freed": counts.fell - counts.file, **cgroup, **actors}


def _kswapd_cause(counts: ReclaimCounts) -> ReclaimCause:
    if counts.short is None:
        return KSWAPD_UNKNOWN
    return KSWAPD_SHORT if counts.short else KSWAPD


def _direct_cause(counts: ReclaimCounts) -> ReclaimCause:
    """A process that compacts for a huge page also reclaims; one that needs any page stalls without compacting."""
    compacting = (counts.compact_stalls or 0) > (counts.alloc_stalls or 0)
    return COMPACTION if compacting else DIRECT


def _numa_cause(node: int) -> ReclaimCause:
    return ReclaimCause(
        "NUMA imbalance", f"NUMA node {node} is full while others are not", True,
        "Start the server with numactl --interleave=all, or check numastat for the process that fills that node.",
    )  # fmt: skip


# Page cache that falls while free memory rises: detected over the last half minute, and measured. Pure except for the
# buffer of readings.
#
# Shared memory counts as cached in /proc/meminfo and is not page cache: a server that stops returns gigabytes of it.
# It is subtracted, so a restart is not a fall. If a process takes the memory, free does not rise: not a fall either.

_LOW_FREE = 0.25
"""A node counts as full below a quarter of the free share of the emptiest node."""
_ANON_SHARE = 0.5
"""If anonymous memory grew by half of what the cache lost, the memory was needed."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading of /proc/meminfo with that of /proc/vmstat, None if missing."""

    mono_us: int
    wall_us: int
    memory: host.MemInfo
    vmstat: host.VmStat | None
    cached: int
    """Page cache in bytes: Cached without Shmem."""


def make_reading(memory: host.MemInfo, vmstat: host.VmStat | None, mono_us: int, wall_us: int) -> MemoryReading:
    return MemoryReading(mono_us, wall_us, memory, vmstat, memory.cached - (memory.shmem or 0))


class RecentReadings:
    """The readings of the last `span_us`. A reading after a gap, or from another run, restarts it."""

    def __init__(self) -> None:
        self.readings: deque[MemoryReading] = deque()
        self.highest = 0
        """Highest page cache in bytes."""
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
    """A fall of the page cache, from its last maximum until now."""

    began_wall_us: int
    """Host wall time of the last maximum."""
    fell: int
    """Bytes of page cache lost."""
    rose: int
    """Bytes of free memory gained, including the pool of huge pages."""
    seconds: float
    readings: tuple[MemoryReading, ...]


def find_fall(ticks: Sequence[MemoryReading], least: float, free_pct: float) -> CacheFall | None:
    """Return the current or just finished fall: `least` bytes of cache lost, `free_pct` of them free now."""
    now = ticks[-1]
    top = max(reversed(ticks), key=_cached_bytes)  # of equals the last: the fall begins where the plateau ends
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
    """Return the counts of the readings in which the cache fell; reclaim and rereads in between are churn."""
    falling = [(old, new) for old, new in pairwise(fall.readings) if new.cached < old.cached]
    first, last = fall.readings[0].memory, fall.readings[-1].memory
    page = _page_size(fall.readings)

    def pages(name: str) -> int | None:
        count = _sum_counter(falling, name)
        return None if count is None else count * page

    return ReclaimCounts(
        fell=sum(old.cached - new.cached for old, new in falling),
        # Counted when the drop is finished (fs/drop_caches.c): it may be in the reading after the fall.
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
    """Return the sum over the pairs; None if the kernel does not count it, or the counter was reset."""
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
    """Return the bytes of free memory at which kswapd stops, roughly: min_free_kbytes plus twice the mark distance.

    The distance is a quarter of the minimum or watermark_scale_factor of memory, in units of 1/10000, whichever is
    more (mm/page_alloc.c, __setup_per_zone_wmarks). None if the minimum is not known.
    """
    if settings is None or settings.min_free_kbytes is None:
        return None
    least = settings.min_free_kbytes << 10
    return least + 2 * max(least // 4, total * (settings.watermark_scale_factor or 0) // 10_000)


def _was_short(fall: CacheFall, settings: host.HostSettings | None) -> bool | None:
    """Whether reclaim was needed: programs took the memory, or free memory is at most what kswapd keeps free."""
    first, last = fall.readings[0].memory, fall.readings[-1].memory
    if last.anon is not None and first.anon is not None and last.anon - first.anon >= fall.fell * _ANON_SHARE:
        return True
    high = high_watermark(last.total, settings)
    return None if high is None else last.free <= 2 * high


def full_node(now: host.HostSettings | None, before: host.HostSettings | None) -> int | None:
    """Return the node whose requests went to other nodes because it has far less free memory; None if none."""
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


GAP_US = 5_000_000
ONE_FALL_US = 10_000_000
"""A fall seen again within ten seconds is the same fall."""
REMEMBERED_US = 600_000_000
"""The cost of a fall is counted for ten minutes."""


@dataclass(slots=True)
class CacheFallEpisode:
    """A fall from its first reading to its last, with its values when most was lost."""

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
    """`times` writes to drop_caches since `began_wall_us`, and the bytes the cache lost with them."""

    began_wall_us: int
    seen_mono_us: int
    times: int
    fell: int
    rose: int


class ReclaimMonitor:
    """State kept between ticks to detect a fall and its cause."""

    def __init__(self) -> None:
        self.recent = RecentReadings()
        self.episode: CacheFallEpisode | None = None
        """The newest fall, also after it ended; dropped after ten minutes."""
        self.drop: CacheDrop | None = None
        self.falling = False
        """Whether the fall is present in this tick."""
        self._at: tuple[str, int] = ("", 0)

    def update(self, s: RuleContext) -> CacheFallEpisode | None:
        """Return the fall present in this tick, else None; a second call in the tick returns the same."""
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
        limits = s.limits.of(CacheFallLimits)
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
                return  # the cache recovers: the largest loss is reported
            known.fall, known.counts = fall, count_reclaim(fall, now, before)
            known.cause = find_reclaim_cause(known.counts)
            return
        counts = count_reclaim(fall, now, before)
        read = _typical_read_rate(s, fall.began_wall_us)
        began_us = fall.readings[0].mono_us
        self.episode = CacheFallEpisode(
            fall.began_wall_us, fall, counts, find_reclaim_cause(counts), began_us, s.mono_us, read
        )

    def _record_drop(self, s: RuleContext) -> None:
        """Record a write to drop_caches, however much the cache lost and whatever was read again meanwhile."""
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


def least_fall(total: int, limits: CacheFallLimits) -> float:
    """Return the bytes of page cache whose loss counts as a fall, on a host with `total` bytes of memory."""
    return min(max(limits.fell_least_bytes, total * limits.fell_pct / 100), max(limits.fell_most_bytes, 0))


def _typical_read_rate(s: RuleContext, until_us: int) -> float | None:
    values = [
        value for at_us, value in s.history.series("io.read_bytes_per_s") if until_us - 60_000_000 <= at_us <= until_us
    ]
    return median(values) if values else None
