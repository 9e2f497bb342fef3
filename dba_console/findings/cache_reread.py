"""The bill for cache that went: what has to be read again.

What the kernel reclaimed and is asked for again it counts (workingset_refault_file). Pages dropped on request leave no
trace to count by (mm/vmscan.c, remove_mapping without a shadow), so after that it is what the devices read beyond what
they read in the minute before. What it costs is told by the devices' own rate: the share of their time that goes into
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from dba_console.findings.page_cache_drop import SERIES
from dba_console.findings.reclaim_monitor import CacheFallEpisode, reclaim_monitor
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.devices import derive_devices
from dba_console.frames.rates import pair
from dba_console.samples import host
from dba_console.units import human_bytes

_LEAST_SHARE = 0.8
"""Of the seconds of the window so many must have a reading: a rate is not made of gaps."""


@dataclass(slots=True)
class RereadCost:
    """What has been read again since a fall; `rates` by second over the last ones: (monotonic time, bytes/s, share of
    the devices' time in percent, None where it is not known)."""

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
        """Mean over the window, None where too little of it is known."""
        if len(self.rates) < seconds * _LEAST_SHARE:
            return None
        return sum(rate for _, rate, _ in self.rates) / len(self.rates)

    def busy_pct(self) -> float | None:
        """Mean share of the devices' time over the window, None where it is not known."""
        known = [busy for _, _, busy in self.rates if busy is not None]
        return sum(known) / len(known) if known else None


def cache_reread(s: RuleContext) -> Iterator[Signal]:
    """Cache that went is read again, at a rate that queries feel, for ten seconds and more: 32 MB/s, and a fifth of the
    time of the device that reads most. How many bytes are much is each device's own matter; its busy time is measured.
    """
    watch = reclaim_monitor(s)
    watch.update(s)
    episode, memo = watch.episode, s.memo("cache-reread")
    if episode is None or not episode.cause.reclaimed:
        memo.clear()
        return
    rate = _reread_rate(s, episode)
    if rate is None:
        return
    bill: RereadCost | None = memo.get("bill")
    if bill is None or bill.begun_us != episode.began_wall_us:
        bill = memo["bill"] = RereadCost(episode.began_wall_us)
    limits = s.limits.memory
    bill.add(rate, _busy_pct(s, rate), s.mono_us, int(limits.reread_s * 1e6))
    mean, busy = bill.rate(limits.reread_s), bill.busy_pct()
    if not s.over(mean, limits.reread_bytes_per_s, limits.reread_bytes_per_s / 2, "cache-reread") or mean is None:
        return
    if busy is not None and not s.over(busy, limits.reread_busy_pct, limits.reread_busy_pct / 2, "cache-reread"):
        return
    text = f"{human_bytes(bill.total)} of page cache read again so far, at {human_bytes(mean, per_s=True)}"
    yield Signal(
        severity="warning",
        text=f"The cache that went was needed: {text}",
        effect=text,
        cause=f"the cache that went is read again ({human_bytes(bill.total)} so far)",
        evidence={
            "reread_bytes": bill.total,
            "reread_bytes_per_s": mean,
            "reread_busy_pct": busy,
            "cached_fell_bytes": episode.fall.fell,
        },
        series=("memory.refault_bytes_per_s", *SERIES),
        advice="Queries that read from disk are slow until the cache is back: let no more work begin meanwhile.",
    )


def _busy_pct(s: RuleContext, rate: float) -> float | None:
    """Share of its time that the device which reads most spends on reading so much again; None if unknown."""
    disks = s.picture.now("host.disks", host.Disks)
    if disks is None:
        return None
    rows = derive_devices(disks, pair(s.picture, "host.disks", host.Disks), None)
    row = max((row for row in rows if row.read_bytes_per_s), key=lambda row: row.read_bytes_per_s or 0.0, default=None)
    if row is None or not row.util_pct or not row.read_bytes_per_s:
        return None  # a device that counts no busy time
    return row.util_pct * min(1.0, rate / row.read_bytes_per_s)


def _reread_rate(s: RuleContext, episode: CacheFallEpisode) -> float | None:
    """Bytes per second read again; what comes from no disk (a sparse file) costs nobody anything."""
    read = s.point.get("io.read_bytes_per_s")
    if read is None:
        return None
    if episode.cause.name == "drop_caches":
        return max(0.0, read - (episode.read_before or 0.0))
    refaults = s.point.get("memory.refault_bytes_per_s")
    return None if refaults is None else min(refaults, read)
