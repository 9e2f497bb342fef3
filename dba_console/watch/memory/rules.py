"""All rules about memory, and which of them explains which."""

from __future__ import annotations

from dba_console.watch.findings.rule import CausalLink, Family
from dba_console.watch.memory.kernel_rules import KERNEL_RULES, MemoryLimits
from dba_console.watch.memory.page_cache_rules import PAGE_CACHE_RULES, CacheDropLimits, RereadLimits
from dba_console.watch.memory.reclaim_monitor import CacheFallLimits

FAMILY = Family(
    "Memory",
    "memory",
    (*PAGE_CACHE_RULES, *KERNEL_RULES),
    thresholds=(CacheFallLimits, CacheDropLimits, RereadLimits, MemoryLimits),
    links=(
        CausalLink("cache-dropped", "reclaim-stall", " and "),
        CausalLink("memory-reclaim", "reclaim-stall", ", while "),
        CausalLink("cache-reread", "reclaim-stall", " after "),
        CausalLink("cache-reread", "cache-dropped"),
        CausalLink("cache-reread", "memory-reclaim", " after "),
    ),
)
