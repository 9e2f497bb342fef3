"""Rules about memory of the kernel: swap, processes killed for lack of memory, kernel settings."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.core.units import human_bytes, human_pct
from dba_console.watch.findings.phrases import past_time_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Judgement, RuleThresholds
from dba_console.watch.frames.rates import rate
from dba_console.watch.memory.reclaim_monitor import CacheFallLimits, ReclaimMonitor
from dba_console.watch.samples import host


class MemoryLimits(RuleThresholds, frozen=True):
    """`[findings.memory]`: swap, huge pages, OOM kills."""

    family = "memory"

    swap_pages_per_s: Judgement[float] = 50.0
    """Warning if this many pages per second are swapped in, and as many out, over `swap_s`."""
    swap_s: Judgement[float] = 10.0
    """Averaging time of the swap rates: a restarted program touches its swapped pages for a second or two."""
    swap_used_pct: Judgement[float] = 50.0
    """Info from this percentage of swap in use, if nothing is swapped."""
    thp_shared_buffers_bytes: Judgement[int] = 1024**3
    """With smaller shared_buffers transparent huge pages are not reported."""
    oom_told_s: Judgement[float] = 900.0
    """How long a process killed for lack of memory is reported."""


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
            still_shown = "mono_us" in memo and s.mono_us - memo["mono_us"] < s.limits.of(MemoryLimits).oom_told_s * 1e6
            memo["killed"] = vmstat.oom_kill - before + (memo["killed"] if still_shown else 0)
            memo["first_us"] = memo["first_us"] if still_shown else s.now_us
            memo["mono_us"], memo["at_us"] = s.mono_us, s.now_us
    if "mono_us" not in memo or s.mono_us - memo["mono_us"] >= s.limits.of(MemoryLimits).oom_told_s * 1e6:
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
    if shared is None or shared < s.limits.of(MemoryLimits).thp_shared_buffers_bytes:
        return
    yield Signal(
        severity="info",
        subject="transparent_hugepage",
        text="Transparent huge pages are always on, with defrag always: any page fault may wait for memory compaction",
        evidence={"thp": "always", "thp_defrag": "always", "shared_buffers_bytes": shared},
        series=("memory.alloc_stalls_per_s",),
        advice=f"echo madvise > {_THP}/defrag (or never > {_THP}/enabled); a boot option or a unit persists it.",
    )


# Swap: pages that move in and out cost time, pages that stay there do not.


def swap_in_use(s: RuleContext) -> Iterator[Signal]:
    """Sustained swapping in both directions is a warning; much swap used is info."""
    memory = s.facts.picture.now("host.memory", host.MemInfo)
    if memory is None or memory.swap_total <= 0:
        return
    used = max(0, memory.swap_total - memory.swap_free)
    pct = 100 * used / memory.swap_total
    moved = _per_s(s)
    limits = s.limits.of(MemoryLimits)
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
    """Return pages swapped in and out per second over `swap_s`, at most over what is kept of the readings; None before
    that span is known, or after a reset."""
    watch = s.shared(ReclaimMonitor)
    watch.update(s)
    readings = [(each.mono_us, each.vmstat) for each in watch.recent.readings if each.vmstat is not None]
    if not readings or readings[-1][0] != s.mono_us:
        return None
    span_s = min(s.limits.of(MemoryLimits).swap_s, s.limits.of(CacheFallLimits).window_s)
    # From the reading just before the span on: the rate is one over the whole of it.
    before = (each for each in reversed(readings) if s.mono_us - each[0] >= span_s * 1e6)
    first_us, first = next(before, readings[0])
    seconds, last = (s.mono_us - first_us) / 1e6, readings[-1][1]
    if seconds < span_s * 0.9:
        return None
    came, went = rate(last.pswpin, first.pswpin, seconds), rate(last.pswpout, first.pswpout, seconds)
    return None if came is None or went is None else (came, went)


KERNEL_RULES = (
    Rule(
        name="swap-in-use",
        title="The host swaps, or much swap is used",
        parts=("host.memory", "host.vmstat"),
        check=swap_in_use,
        warm_up_s=10.0,
        settings=(
            MemoryLimits.swap_pages_per_s,
            MemoryLimits.swap_s,
            MemoryLimits.swap_used_pct,
        ),
        source="vmstat(8), si and so; check_swap of the monitoring plugins warns by share, which alone is "
        "not a problem",
    ),
    Rule(
        name="oom-kill",
        title="The kernel killed a process for lack of memory",
        parts=("host.vmstat",),
        check=oom_kill,
        clear_after_s=0.0,
        settings=(MemoryLimits.oom_told_s,),
        source="oom_kill of /proc/vmstat (mm/oom_kill.c, Linux 4.13); PostgreSQL: Linux Memory Overcommit (18.4.4)",
    ),
    Rule(
        name="memory-settings",
        title="A kernel setting costs a database page cache or latency",
        parts=("host.settings",),
        check=memory_settings,
        settings=(MemoryLimits.thp_shared_buffers_bytes,),
        source="Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode; PostgreSQL documentation, huge_pages "
        "(transparent huge pages are discouraged)",
    ),
)
