"""Settings of the kernel under which a database loses its cache or its time, with what to set instead."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.samples import host

_THP = "/sys/kernel/mm/transparent_hugepage"


def memory_settings(s: RuleContext) -> Iterator[Signal]:
    """zone_reclaim_mode that is on; huge pages on demand, with a wait for compaction at every fault."""
    settings = s.facts.picture.now("host.settings", host.HostSettings)
    if settings is None:
        return
    if settings.zone_reclaim_mode:
        yield Signal(
            severity="warning",
            subject="zone_reclaim_mode",
            text=f"vm.zone_reclaim_mode is {settings.zone_reclaim_mode}: a memory node gives up page cache while "
            "others have memory free",
            evidence={"zone_reclaim_mode": settings.zone_reclaim_mode, "numa_nodes": len(settings.numa)},
            series=("memory.cached_bytes", "memory.free_bytes"),
            advice="sysctl -w vm.zone_reclaim_mode=0, and the same in /etc/sysctl.d to keep it.",
        )
    if (settings.thp, settings.thp_defrag) == ("always", "always"):
        yield from _huge_pages(s)


def _huge_pages(s: RuleContext) -> Iterator[Signal]:
    """Only where memory is big enough for compaction to be felt; explicit huge pages do not fault so."""
    shared = s.facts.size("shared_buffers")
    if shared is None or shared < s.limits.memory.thp_shared_buffers_bytes:
        return
    yield Signal(
        severity="info",
        subject="transparent_hugepage",
        text="Transparent huge pages are always on, with defrag always: any page fault may wait for memory compaction",
        evidence={"thp": "always", "thp_defrag": "always", "shared_buffers_bytes": shared},
        series=("memory.alloc_stalls_per_s",),
        advice=f"echo defer+madvise > {_THP}/defrag (or never > {_THP}/enabled); a boot option or a unit keeps it.",
    )
