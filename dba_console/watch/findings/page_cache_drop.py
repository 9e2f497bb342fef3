"""Rules for falling page cache: it was dropped, it is reclaimed, or it is reclaimed and I/O is stalled (story S1)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.findings import io_stall
from dba_console.watch.findings.reclaim_monitor import FREED, CacheDrop, CacheFallEpisode, ReclaimMonitor
from dba_console.watch.findings.rule import RuleContext, Signal, Value
from dba_console.watch.samples.findings import Severity

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
    stalls = s.shared(io_stall.StallMonitor)
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


def _stall_text(
    s: RuleContext, episode: CacheFallEpisode, stalls: io_stall.StallMonitor, stall: io_stall.IoStall
) -> str | None:
    """Return how I/O is stalled, as text; None if it is not, was so before, or nothing waits."""
    limits = s.limits.memory
    if (stall.memory_pct or 0.0) >= limits.memory_stalled_pct:
        return f"all tasks waited for memory {stall.memory_pct:.0f} % of the time"
    felt = stalls.affected_us is not None and s.mono_us - stalls.affected_us <= io_stall.AFFECTED_US
    if felt and stalls.affected_since_us >= episode.began_mono_us - _BEFORE_US:
        share = stall.share_pct or 0.0
        if share >= s.limits.io.stalled_clear_pct:
            return f"{share:.0f} % of the last {s.limits.io.window_s:.0f} s"
        return "server processes wait for it"
    return "almost nothing read or written" if _is_standstill(s) else None


def _is_standstill(s: RuleContext) -> bool:
    """Whether I/O that ran a minute ago has stopped, and sessions wait for it: the only sign on kernels without PSI
    (before 4.20), and the one that solved story S1."""
    limits = s.limits.memory
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
    limits = s.limits.memory
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
    big = fell >= last.total * s.limits.memory.reclaim_warning_pct / 100
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
    if fell <= 0 or fastest < s.limits.memory.standstill_before_bytes_per_s:
        return "", None
    seconds = fell / fastest
    at = human_bytes(fastest, per_s=True)
    return f"; reading it again takes {human_duration(seconds)} at the {at} seen here", seconds
