"""Rules about the page cache: dropped, reclaimed, reclaimed while I/O is stalled, and read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.block_devices import derive_devices
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, Value
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import pair
from dba_console.watch.io_stall import AFFECTED_US, IoStall, StallLimits, StallMonitor
from dba_console.watch.memory.reclaim_monitor import (
    FREED,
    CacheDrop,
    CacheFallEpisode,
    CacheFallLimits,
    ReclaimMonitor,
)
from dba_console.watch.samples import host
from dba_console.watch.samples.findings import Severity


class CacheDropLimits(RuleThresholds, frozen=True):
    """`[findings.memory]`: page cache dropped or reclaimed. Percentages of memory are of MemTotal."""

    family = "memory"

    reclaim_notice_pct: Judgement[float] = 3.0
    """A fall of the page cache without a stall is info from this percentage of memory."""
    reclaim_warning_pct: Judgement[float] = 10.0
    """Such a fall is a warning from this percentage: a tenth of memory is gigabytes to read again."""
    memory_stalled_pct: Judgement[float] = 20.0
    """A fall of the page cache stalls queries from this percentage of the last ten seconds in which all tasks waited
    for memory."""
    standstill_pct: Judgement[float] = 5.0
    """I/O as a percentage of the minute before, at which it counts as stopped on kernels without PSI."""
    standstill_before_bytes_per_s: Judgement[int] = 1024**2
    """I/O of the minute before below which a standstill is not concluded."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.reclaim_notice_pct, cls.reclaim_warning_pct),)


class RereadLimits(RuleThresholds, frozen=True):
    """`[findings.memory]`: cache read again."""

    family = "memory"

    reread_bytes_per_s: Judgement[int] = 32 * 1024**2
    """Rate of reading lost cache again below which nothing is raised: a third of what one disk reads in sequence."""
    reread_busy_pct: Judgement[float] = 20.0
    """Percentage of the devices' time it must take: 32 MB/s is a fiftieth of the rate of one NVMe."""
    reread_s: Judgement[float] = 10.0
    """Averaging time of this rate."""


SERIES = (
    "memory.cached_bytes", "memory.free_bytes", "memory.reclaim_kswapd_bytes_per_s",
    "memory.reclaim_direct_bytes_per_s", "io.read_bytes_per_s", "io.write_bytes_per_s", "io.psi_full_pct",
    "connections.used",
)  # fmt: skip
_SAME_TIME_US = 30_000_000
"""A fall is over in seconds; the stall it causes may last longer."""
_BEFORE_US = 3_000_000
"""A cause comes before its effect; a stall is known only after sessions have waited for a second or two."""
DROP_SHOWN_US = 60_000_000
"""A write to drop_caches is instantaneous; it is shown for a minute."""


def reclaim_stall(s: RuleContext) -> Iterator[Signal]:
    """Page cache falls, free memory rises, and I/O is stalled.

    Critical, with the cause by the kernel's counters: drop_caches, kswapd without a shortage, direct reclaim, a control
    group's limit, zone_reclaim_mode, a full NUMA node, compaction, memory.reclaim. The fall must precede or accompany
    the stall. A freed file looks the same and is left to the rules about I/O.
    """
    watch = s.shared(ReclaimMonitor)
    episode = watch.update(s)
    stalls = s.shared(StallMonitor)
    stall = stalls.update(s)
    if episode is None and not s.is_open("reclaim-stall"):
        return
    episode = episode or watch.episode
    if episode is None or s.mono_us - episode.seen_mono_us > _SAME_TIME_US:
        return
    if episode.cause is FREED:
        return  # not reclaim; whether freeing the file stalls the disk is left to the rules about I/O tell
    how = _stall_text(s, episode, stalls, stall)
    if how is None:
        return
    text = _fall_text(episode)
    severity: Severity = "critical" if episode.cause.reclaimed else "warning"
    yield Signal(
        severity=severity,
        text=f"I/O is stalled ({how}) while {text}",
        effect=f"I/O is stalled ({how}) while {text}",
        cause=text,
        evidence={**_evidence(episode), "stalled_pct": stall.share_pct, "memory_stalled_pct": stall.memory_pct},
        series=SERIES,
        since_us=_first_bout_us(s, episode),
        runbook="cache-drop" if episode.cause.reclaimed else None,
        advice=episode.cause.advice,
    )


def _first_bout_us(s: RuleContext, episode: CacheFallEpisode) -> int:
    """Return when the first of the stalls that form one finding began, host wall time."""
    memo = s.memo("reclaim-stall")
    if not s.is_open("reclaim-stall"):
        memo["since_us"] = episode.began_wall_us
    since_us: int = memo["since_us"]
    return since_us


def _stall_text(s: RuleContext, episode: CacheFallEpisode, stalls: StallMonitor, stall: IoStall) -> str | None:
    """Return how I/O is stalled, as text; None if it is not, was so before, or nothing waits."""
    limits = s.limits.of(CacheDropLimits)
    if (stall.memory_pct or 0.0) >= limits.memory_stalled_pct:
        return f"all tasks waited for memory {stall.memory_pct:.0f} % of the time"
    felt = stalls.affected_us is not None and s.mono_us - stalls.affected_us <= AFFECTED_US
    if felt and stalls.affected_since_us >= episode.began_mono_us - _BEFORE_US:
        share = stall.share_pct or 0.0
        if share >= s.limits.of(StallLimits).stalled_clear_pct:
            return f"{share:.0f} % of the last {s.limits.of(StallLimits).window_s:.0f} s"
        return "server processes wait for it"
    return "almost nothing read or written" if _is_standstill(s) else None


def _is_standstill(s: RuleContext) -> bool:
    """Whether I/O that ran a minute ago has stopped, and sessions wait for it: the only sign on kernels without PSI
    (before 4.20), and the one where this was first seen."""
    limits = s.limits.of(CacheDropLimits)
    if "host.pressure" in s.facts.picture.current or (s.point.get("io.procs_blocked") or 0) < 1:
        return False
    totals: dict[int, float] = {}
    for name in ("io.read_bytes_per_s", "io.write_bytes_per_s"):
        for at_us, value in s.history.series(name):
            if s.now_us - at_us <= 90_000_000:
                totals[at_us] = totals.get(at_us, 0.0) + value
    now = [value for at_us, value in totals.items() if s.now_us - at_us < 3_000_000]
    before = [value for at_us, value in totals.items() if s.now_us - at_us >= 10_000_000]
    if len(now) < 2 or len(before) < 10:
        return False
    typical = median(before)
    return typical >= limits.standstill_before_bytes_per_s and max(now) <= typical * limits.standstill_pct / 100


def _fall_text(episode: CacheFallEpisode) -> str:
    fall, cause = episode.fall, episode.cause
    words = f"page cache fell {human_bytes(fall.fell)} and free memory rose {human_bytes(fall.rose)}"
    return f"{words}: memory reclaim ({cause.text})" if cause.reclaimed else f"{words}: {cause.text}"


def _evidence(episode: CacheFallEpisode) -> dict[str, Value]:
    fall, counts = episode.fall, episode.counts
    numbers: dict[str, Value] = {
        "cached_fell_bytes": fall.fell,
        "free_rose_bytes": fall.rose,
        "fell_in_s": fall.seconds,
        "cause": episode.cause.name,
        "reclaim_file_bytes": counts.file,
        "reclaim_kswapd_bytes": counts.kswapd,
        "reclaim_direct_bytes": counts.direct,
        "reclaim_proactive_bytes": counts.proactive,
        "drop_pagecache": counts.dropped,
        "zone_reclaims": counts.zone,
        "alloc_stalls": counts.alloc_stalls,
        "compact_stalls": counts.compact_stalls,
    }
    return {name: value for name, value in numbers.items() if value is not None}


def memory_reclaim(s: RuleContext) -> Iterator[Signal]:
    """Page cache falls without a memory shortage, and I/O goes on.

    Info from 3 % of memory, a warning from 10 % within half a minute. A write to drop_caches has its own finding; a
    freed file is not reclaim: info from a tenth of memory.
    """
    episode = s.shared(ReclaimMonitor).update(s)
    if episode is None or s.is_open("reclaim-stall") or episode.cause.name == "drop_caches":
        return
    limits = s.limits.of(CacheDropLimits)
    pct = 100 * episode.fall.fell / max(1, episode.fall.readings[-1].memory.total)
    reclaimed = episode.cause.reclaimed
    if pct < (limits.reclaim_notice_pct if reclaimed else limits.reclaim_warning_pct):
        return
    text = _fall_text(episode)
    yield Signal(
        severity="warning" if reclaimed and pct >= limits.reclaim_warning_pct else "info",
        text=text[0].upper() + text[1:],
        effect="I/O is stalled",  # used only as part of that finding
        cause=text,
        evidence=_evidence(episode),
        series=SERIES,
        since_us=episode.began_wall_us,
        advice=episode.cause.advice,
    )


def cache_dropped(s: RuleContext) -> Iterator[Signal]:
    """A process wrote to drop_caches; a warning if a tenth of memory was dropped."""
    watch = s.shared(ReclaimMonitor)
    watch.update(s)
    drop = watch.drop
    if drop is None or s.mono_us - drop.seen_mono_us > DROP_SHOWN_US:
        return
    last = watch.recent.readings[-1].memory
    fell = max(0, drop.fell)
    big = fell >= last.total * s.limits.of(CacheDropLimits).reclaim_warning_pct / 100
    cost, seconds = _reread_estimate(s, fell)
    cause = f"the page cache was dropped (drop_pagecache +{drop.times}, {human_bytes(fell)})"
    yield Signal(
        severity="warning" if big else "info",
        text=f"Page cache dropped: a process wrote drop_caches (drop_pagecache +{drop.times}), "
        f"{human_bytes(fell)} of cache dropped{cost}",
        effect=f"the page cache was dropped (drop_pagecache +{drop.times})",
        cause=cause,
        evidence=_drop_evidence(drop, seconds),
        series=SERIES,
        since_us=drop.began_wall_us,
        advice="dmesg names the process (drop_caches: N) unless it suppressed that message; check cron.",
    )


def _drop_evidence(drop: CacheDrop, seconds: float | None) -> dict[str, Value]:
    numbers: dict[str, Value] = {"drop_pagecache": drop.times, "cached_fell_bytes": max(0, drop.fell)}
    if seconds is not None:
        numbers["reread_s"] = seconds
    return numbers


def _reread_estimate(s: RuleContext, fell: int) -> tuple[str, float | None]:
    """Return the time to read it again at the highest rate seen within ten minutes; empty if not known."""
    rates = [value for _, value in s.history.series("io.read_bytes_per_s")]
    fastest = max(rates, default=0.0)
    if fell <= 0 or fastest < s.limits.of(CacheDropLimits).standstill_before_bytes_per_s:
        return "", None
    seconds = fell / fastest
    at = human_bytes(fastest, per_s=True)
    return f"; reading it again takes {human_duration(seconds)} at the {at} seen here", seconds


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
    limits = s.limits.of(RereadLimits)
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


_READ = ("host.memory", "host.vmstat")
_FALL = (
    CacheFallLimits.fell_pct,
    CacheFallLimits.fell_least_bytes,
    CacheFallLimits.fell_most_bytes,
    CacheFallLimits.free_pct,
    CacheFallLimits.window_s,
)
_SIGNATURE = (
    "an incident (cached fell while free rose while I/O stopped); Documentation/admin-guide/mm and sysctl/vm.rst, "
    "mm/vmscan.c, mm/vmstat.c for the counters that show the cause"
)

PAGE_CACHE_RULES = (
    Rule(
        name="reclaim-stall",
        title="I/O is stalled while page cache is reclaimed",
        parts=_READ,
        check=reclaim_stall,
        warm_up_s=30.0,
        clear_after_s=30,  # stalls recur: one finding for all
        settings=(
            *_FALL,
            CacheDropLimits.memory_stalled_pct,
            CacheDropLimits.standstill_pct,
            StallLimits.stalled_pct,
        ),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-dropped",
        title="The page cache was dropped",
        parts=_READ,
        check=cache_dropped,
        settings=(CacheDropLimits.reclaim_warning_pct,),
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
        settings=(
            *_FALL,
            CacheDropLimits.reclaim_notice_pct,
            CacheDropLimits.reclaim_warning_pct,
        ),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-reread",
        title="Lost page cache is read again",
        parts=("host.vmstat", "host.disks"),
        check=cache_reread,
        warm_up_s=10.0,
        settings=(
            RereadLimits.reread_bytes_per_s,
            RereadLimits.reread_busy_pct,
            RereadLimits.reread_s,
        ),
        source="workingset_refault_file (mm/workingset.c); 32 MB/s is a third of what one disk reads in sequence; "
        "io_ticks of /proc/diskstats (Documentation/admin-guide/iostats.rst)",
    ),
)
