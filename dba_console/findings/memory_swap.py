"""Swap: pages that go out and come in again are time lost, pages that lie there are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.rates import delta
from dba_console.samples import host
from dba_console.units import human_bytes, human_pct

_GAP_US = 5_000_000
_SwapCounters = tuple[int, int, int]
"""Monotonic time, pages swapped in and out since boot."""


def swap_in_use(s: RuleContext) -> Iterator[Signal]:
    """Sustained traffic in both directions is a warning; much swap used is a line, and no fault."""
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
            advice="More memory is in use than there is: see who grew, then work_mem times sessions, shared_buffers.",
        )
    elif s.over(pct, limits.swap_used_pct, limits.swap_used_pct * 0.8, "swap-in-use"):
        yield Signal(
            severity="info",
            text=f"{share}, with no traffic to speak of",
            evidence=evidence,
            series=series,
            advice="Pages nobody asks for do no harm there; traffic in both directions would.",
        )


def _per_s(s: RuleContext) -> tuple[float, float] | None:
    """Pages in and out per second over `swap_s`; None before that much is known, or after a reset."""
    vmstat = s.facts.picture.now("host.vmstat", host.VmStat) if "host.vmstat" in s.read else None
    memo = s.memo("swap")
    ring: deque[_SwapCounters] = memo.setdefault("ring", deque())
    if vmstat is None or vmstat.pswpin is None or vmstat.pswpout is None:
        return None
    if memo.get("boot") != s.picture.boot or (ring and not 0 < s.mono_us - ring[-1][0] <= _gap_us(s)):
        ring.clear()
    memo["boot"] = s.picture.boot
    ring.append((s.mono_us, vmstat.pswpin, vmstat.pswpout))
    span_us = int(s.limits.memory.swap_s * 1e6)
    while len(ring) > 2 and s.mono_us - ring[1][0] >= span_us:
        ring.popleft()
    first, last = ring[0], ring[-1]
    seconds = (last[0] - first[0]) / 1e6
    if seconds < s.limits.memory.swap_s * 0.9:
        return None
    came, went = delta(last[1], first[1]), delta(last[2], first[2])
    return None if came is None or went is None else (came / seconds, went / seconds)


def _gap_us(s: RuleContext) -> int:
    return max(_GAP_US, 5 * s.picture.tick_us)
