"""Rules about memory: page cache dropped or reclaimed, cache read again, OOM kills, kernel settings, swap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from dba_console.core.units import human_bytes, human_pct
from dba_console.watch.findings.page_cache_drop import SERIES, cache_dropped, memory_reclaim, reclaim_stall
from dba_console.watch.findings.phrases import past_time_text
from dba_console.watch.findings.reclaim_monitor import CacheFallEpisode, ReclaimMonitor
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.frames.io import derive_devices
from dba_console.watch.frames.rates import delta, pair
from dba_console.watch.samples import host

# The cost of lost page cache: what is read again.
#
# The kernel counts reclaimed pages that are requested again (workingset_refault_file). Pages dropped on request leave
# no trace (mm/vmscan.c, remove_mapping without a shadow), so after a drop it is what the devices read beyond the minute
# before. The cost is the share of the devices' time spent on it.

_LEAST_SHARE = 0.8
"""Share of the window's seconds that must have a reading for a rate."""


@dataclass(slots=True)
class RereadCost:
    """What has been read again since a fall; `rates` per second of the window: (monotonic time, bytes/s, percentage of
    the devices' time, None if not known)."""

    begun_us: int
    total: float = 0.0
    last_us: int | None = None
    rates: deque[tuple[int, float, float | None]] = field(default_factory=deque)

    def add(self, rate: float, busy_pct: float | None, mono_us: int, span_us: int) -> None:
        if self.last_us is not None and mono_us - self.last_us <= 5_000_000:
            self.total += rate * (mono_us - self.last_us) / 1e6
        self.last_us = mono_us
        self.rates.append((mono_us, rate, busy_pct))
        while mono_us - self.rates[0][0] >= span_us:
            self.rates.popleft()

    def rate(self, seconds: float) -> float | None:
        """Return the mean over the window; None if too little of it is known."""
        if len(self.rates) < seconds * _LEAST_SHARE:
            return None
        return sum(rate for _, rate, _ in self.rates) / len(self.rates)

    def busy_pct(self) -> float | None:
        """Return the mean percentage of the devices' time over the window; None if not known."""
        known = [busy for _, _, busy in self.rates if busy is not None]
        return sum(known) / len(known) if known else None


def cache_reread(s: RuleContext) -> Iterator[Signal]:
    """Lost page cache is read again, at a rate that slows queries, for ten seconds or more: 32 MB/s, and a fifth of the
    time of the device that reads most. Devices differ in bytes per second, so their busy time is measured.
    """
    watch = s.shared(ReclaimMonitor)
    watch.update(s)
    episode, memo = watch.episode, s.memo("cache-reread")
    if episode is None or not episode.cause.reclaimed:
        memo.clear()
        return
    rate = _reread_rate(s, episode)
    if rate is None:
        return
    cost: RereadCost | None = memo.get("cost")
    if cost is None or cost.begun_us != episode.began_wall_us:
        cost = memo["cost"] = RereadCost(episode.began_wall_us)
    limits = s.limits.memory
    cost.add(rate, _busy_pct(s, rate), s.mono_us, int(limits.reread_s * 1e6))
    mean, busy = cost.rate(limits.reread_s), cost.busy_pct()
    if not s.over(mean, limits.reread_bytes_per_s, limits.reread_bytes_per_s / 2, "cache-reread") or mean is None:
        return
    if busy is not None and not s.over(busy, limits.reread_busy_pct, limits.reread_busy_pct / 2, "cache-reread"):
        return
    text = f"{human_bytes(cost.total)} of page cache read again so far, at {human_bytes(mean, per_s=True)}"
    yield Signal(
        severity="warning",
        text=f"Lost page cache was needed: {text}",
        effect=text,
        cause=f"lost page cache is read again ({human_bytes(cost.total)} so far)",
        evidence={
            "reread_bytes": cost.total,
            "reread_bytes_per_s": mean,
            "reread_busy_pct": busy,
            "cached_fell_bytes": episode.fall.fell,
        },
        series=("memory.refault_bytes_per_s", *SERIES),
        advice="Queries that read from disk are slow until the cache is back: start no additional work until then.",
    )


def _busy_pct(s: RuleContext, rate: float) -> float | None:
    """Return the percentage of its time that the busiest-reading device spends on `rate`; None if not known."""
    disks = s.picture.now("host.disks", host.Disks)
    if disks is None:
        return None
    rows = derive_devices(disks, pair(s.picture, "host.disks", host.Disks), None)
    row = max((row for row in rows if row.read_bytes_per_s), key=lambda row: row.read_bytes_per_s or 0.0, default=None)
    if row is None or not row.util_pct or not row.read_bytes_per_s:
        return None  # the device counts no busy time
    return row.util_pct * min(1.0, rate / row.read_bytes_per_s)


def _reread_rate(s: RuleContext, episode: CacheFallEpisode) -> float | None:
    """Return bytes per second read again; refaults not read from a disk (a sparse file) cost nothing."""
    read = s.point.get("io.read_bytes_per_s")
    if read is None:
        return None
    if episode.cause.name == "drop_caches":
        return max(0.0, read - (episode.read_before or 0.0))
    refaults = s.point.get("memory.refault_bytes_per_s")
    return None if refaults is None else min(refaults, read)


# Processes the kernel killed for lack of memory.


def oom_kill(s: RuleContext) -> Iterator[Signal]:
    """The kernel killed a process for lack of memory, of the host or of a control group; shown for a quarter of an
    hour.

    Counted by oom_kill of /proc/vmstat (4.13 and later), for the whole host. Whether it was one of PostgreSQL's is
    reported by `server-restarted`: the postmaster restarts when a backend is killed (documentation, 18.4.4).
    """
    memo = s.memo("oom-kill")
    vmstat = s.picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
    if vmstat is not None and vmstat.oom_kill is not None:
        before = memo.get("count", vmstat.oom_kill) if memo.get("boot") == s.picture.boot else vmstat.oom_kill
        memo["count"], memo["boot"] = vmstat.oom_kill, s.picture.boot
        if vmstat.oom_kill > before:
            still_shown = "mono_us" in memo and s.mono_us - memo["mono_us"] < s.limits.memory.oom_told_s * 1e6
            memo["killed"] = vmstat.oom_kill - before + (memo["killed"] if still_shown else 0)
            memo["first_us"] = memo["first_us"] if still_shown else s.now_us
            memo["mono_us"], memo["at_us"] = s.mono_us, s.now_us
    if "mono_us" not in memo or s.mono_us - memo["mono_us"] >= s.limits.memory.oom_told_s * 1e6:
        return
    count = memo["killed"]
    what = "a process" if count == 1 else f"{count} processes"
    text = f"The kernel killed {what} for lack of memory, {'' if count == 1 else 'the last '}"
    yield Signal(
        severity="critical",
        text=text + past_time_text(memo["at_us"], s.now_us),
        cause=f"the kernel killed {what} for lack of memory",
        evidence={"oom_kills": count},
        series=("memory.available_bytes", "memory.free_bytes", "memory.swap_used_bytes"),
        since_us=memo["first_us"],
        advice='dmesg ("Out of memory", "oom-kill") names it, its size and the control group. Check work_mem times '
        "sessions, shared_buffers, and vm.overcommit_memory = 2 (documentation, Linux Memory Overcommit).",
    )


# Kernel settings that cost a database page cache or latency, with the value to set instead.

_THP = "/sys/kernel/mm/transparent_hugepage"


def memory_settings(s: RuleContext) -> Iterator[Signal]:
    """vm.zone_reclaim_mode is on, or transparent huge pages wait for compaction at every fault."""
    settings = s.facts.picture.now("host.settings", host.HostSettings)
    if settings is None:
        return
    if settings.zone_reclaim_mode:
        yield Signal(
            severity="warning",
            subject="zone_reclaim_mode",
            text=f"vm.zone_reclaim_mode is {settings.zone_reclaim_mode}: a NUMA node evicts page cache while "
            "others have free memory",
            evidence={"zone_reclaim_mode": settings.zone_reclaim_mode, "numa_nodes": len(settings.numa)},
            series=("memory.cached_bytes", "memory.free_bytes"),
            advice="sysctl -w vm.zone_reclaim_mode=0, and the same in /etc/sysctl.d to persist it.",
        )
    if (settings.thp, settings.thp_defrag) == ("always", "always"):
        yield from _huge_pages(s)


def _huge_pages(s: RuleContext) -> Iterator[Signal]:
    """Only if shared memory is big enough for compaction to matter; explicit huge pages are not affected."""
    shared = s.facts.size("shared_buffers")
    if shared is None or shared < s.limits.memory.thp_shared_buffers_bytes:
        return
    yield Signal(
        severity="info",
        subject="transparent_hugepage",
        text="Transparent huge pages are always on, with defrag always: any page fault may wait for memory compaction",
        evidence={"thp": "always", "thp_defrag": "always", "shared_buffers_bytes": shared},
        series=("memory.alloc_stalls_per_s",),
        advice=f"echo defer+madvise > {_THP}/defrag (or never > {_THP}/enabled); a boot option or a unit persists it.",
    )


# Swap: pages that move in and out cost time, pages that stay there do not.

_GAP_US = 5_000_000
_SwapCounters = tuple[int, int, int]
"""Monotonic time, pages swapped in and out since boot."""


def swap_in_use(s: RuleContext) -> Iterator[Signal]:
    """Sustained swapping in both directions is a warning; much swap used is info."""
    memory = s.facts.picture.now("host.memory", host.MemInfo)
    if memory is None or memory.swap_total <= 0:
        s.memo("swap").clear()
        return
    used = max(0, memory.swap_total - memory.swap_free)
    pct = 100 * used / memory.swap_total
    moved = _per_s(s)
    limits = s.limits.memory
    share = f"{human_bytes(used)} of {human_bytes(memory.swap_total)} swap used ({human_pct(pct)})"
    evidence = {"swap_used_bytes": used, "swap_total_bytes": memory.swap_total, "swap_used_pct": pct}
    series = ("memory.swap_used_bytes", "memory.free_bytes", "memory.cached_bytes")
    least = limits.swap_pages_per_s / (2 if s.is_open("swap-in-use") else 1)
    if moved is not None and min(moved) >= least:
        words = f"{moved[0]:.0f} pages/s come in while {moved[1]:.0f} pages/s go out"
        yield Signal(
            severity="warning",
            text=f"The host swaps: {words}, {share}",
            evidence={**evidence, "swap_in_per_s": moved[0], "swap_out_per_s": moved[1]},
            series=series,
            advice="Memory is overcommitted: check which process grew, then work_mem times sessions, shared_buffers.",
        )
    elif s.over(pct, limits.swap_used_pct, limits.swap_used_pct * 0.8, "swap-in-use"):
        yield Signal(
            severity="info",
            text=f"{share}, with little swapping",
            evidence=evidence,
            series=series,
            advice="Unused pages in swap do no harm; swapping in both directions would.",
        )


def _per_s(s: RuleContext) -> tuple[float, float] | None:
    """Return pages swapped in and out per second over `swap_s`; None before that span is known, or after a reset."""
    vmstat = s.facts.picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
    memo = s.memo("swap")
    readings: deque[_SwapCounters] = memo.setdefault("readings", deque())
    if vmstat is None or vmstat.pswpin is None or vmstat.pswpout is None:
        return None
    gap_us = max(_GAP_US, 5 * s.picture.tick_us)
    if memo.get("boot") != s.picture.boot or (readings and not 0 < s.mono_us - readings[-1][0] <= gap_us):
        readings.clear()
    memo["boot"] = s.picture.boot
    readings.append((s.mono_us, vmstat.pswpin, vmstat.pswpout))
    span_us = int(s.limits.memory.swap_s * 1e6)
    while len(readings) > 2 and s.mono_us - readings[1][0] >= span_us:
        readings.popleft()
    first, last = readings[0], readings[-1]
    seconds = (last[0] - first[0]) / 1e6
    if seconds < s.limits.memory.swap_s * 0.9:
        return None
    came, went = delta(last[1], first[1]), delta(last[2], first[2])
    return None if came is None or went is None else (came / seconds, went / seconds)


_READ = ("host.memory", "host.vmstat")
_FALL = ("memory.fell_pct", "memory.fell_least_bytes", "memory.fell_most_bytes", "memory.free_pct", "memory.window_s")
_SIGNATURE = (
    "story S1 (cached fell while free rose while I/O stopped); Documentation/admin-guide/mm and sysctl/vm.rst, "
    "mm/vmscan.c, mm/vmstat.c for the counters that show the cause"
)

RULES: tuple[Rule, ...] = (
    Rule(
        name="reclaim-stall",
        title="I/O is stalled while page cache is reclaimed",
        parts=_READ,
        check=reclaim_stall,
        warm_up_s=30.0,
        clear_after_s=30,  # stalls recur: one finding for all
        settings=(*_FALL, "memory.memory_stalled_pct", "memory.standstill_pct", "io.stalled_pct"),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-dropped",
        title="The page cache was dropped",
        parts=_READ,
        check=cache_dropped,
        settings=("memory.reclaim_warning_pct",),
        source="Documentation/admin-guide/sysctl/vm.rst, drop_caches; drop_pagecache of /proc/vmstat "
        "(fs/drop_caches.c)",
    ),
    Rule(
        name="memory-reclaim",
        title="Page cache is reclaimed although the memory is not needed",
        parts=_READ,
        check=memory_reclaim,
        warm_up_s=30.0,
        raise_after_s=4.5,  # by then a stall is visible, and drop_caches is counted, which happens at its end
        settings=(*_FALL, "memory.reclaim_notice_pct", "memory.reclaim_warning_pct"),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-reread",
        title="Lost page cache is read again",
        parts=("host.vmstat", "host.disks"),
        check=cache_reread,
        warm_up_s=10.0,
        settings=("memory.reread_bytes_per_s", "memory.reread_busy_pct", "memory.reread_s"),
        source="workingset_refault_file (mm/workingset.c); 32 MB/s is a third of what one disk reads in sequence; "
        "io_ticks of /proc/diskstats (Documentation/admin-guide/iostats.rst)",
    ),
    Rule(
        name="swap-in-use",
        title="The host swaps, or much swap is used",
        parts=_READ,
        check=swap_in_use,
        warm_up_s=10.0,
        settings=("memory.swap_pages_per_s", "memory.swap_s", "memory.swap_used_pct"),
        source="vmstat(8), si and so; story S12; check_swap of the monitoring plugins warns by share, which alone is "
        "not a problem",
    ),
    Rule(
        name="oom-kill",
        title="The kernel killed a process for lack of memory",
        parts=("host.vmstat",),
        check=oom_kill,
        clear_after_s=0.0,
        settings=("memory.oom_told_s",),
        source="oom_kill of /proc/vmstat (mm/oom_kill.c, Linux 4.13); PostgreSQL: Linux Memory Overcommit (18.4.4)",
    ),
    Rule(
        name="memory-settings",
        title="A kernel setting costs a database page cache or latency",
        parts=("host.settings",),
        check=memory_settings,
        settings=("memory.thp_shared_buffers_bytes",),
        source="Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode; PostgreSQL documentation, huge_pages "
        "(transparent huge pages are discouraged)",
    ),
)
