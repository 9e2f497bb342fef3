"""Rules about memory, most of them about page cache that goes: the story this console began with."""

from __future__ import annotations

from dba_console.findings.cache_reread import cache_reread
from dba_console.findings.memory_oom import oom_kill
from dba_console.findings.memory_settings import memory_settings
from dba_console.findings.memory_swap import swap_in_use
from dba_console.findings.page_cache_drop import cache_dropped, memory_reclaim, reclaim_stall
from dba_console.findings.rule import Rule

_READ = ("host.memory", "host.vmstat")
_FALL = ("memory.fell_pct", "memory.fell_least_bytes", "memory.fell_most_bytes", "memory.free_pct", "memory.window_s")
_SIGNATURE = (
    "story S1 (cached fell while free rose while I/O stopped); Documentation/admin-guide/mm and sysctl/vm.rst, "
    "mm/vmscan.c, mm/vmstat.c for the counters that tell the cause"
)

RULES: tuple[Rule, ...] = (
    Rule(
        name="reclaim-stall",
        title="I/O stands still while page cache is reclaimed",
        parts=_READ,
        check=reclaim_stall,
        warm_up_s=30.0,
        clear_after_s=30,  # it comes in bouts: one finding, not one for each
        settings=(*_FALL, "memory.memory_stalled_pct", "memory.standstill_pct", "io.stalled_pct"),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-dropped",
        title="Somebody dropped the page cache",
        parts=_READ,
        check=cache_dropped,
        settings=("memory.reclaim_warning_pct",),
        source="Documentation/admin-guide/sysctl/vm.rst, drop_caches; drop_pagecache of /proc/vmstat "
        "(fs/drop_caches.c)",
    ),
    Rule(
        name="memory-reclaim",
        title="Page cache goes though nobody needs the memory",
        parts=_READ,
        check=memory_reclaim,
        warm_up_s=30.0,
        raise_after_s=4.5,  # by then a stall has shown, and drop_caches has been counted, which is when it is done
        settings=(*_FALL, "memory.reclaim_notice_pct", "memory.reclaim_warning_pct"),
        source=_SIGNATURE,
        runbook="cache-drop",
    ),
    Rule(
        name="cache-reread",
        title="Cache that went is read again",
        parts=("host.vmstat", "host.disks"),
        check=cache_reread,
        warm_up_s=10.0,
        settings=("memory.reread_bytes_per_s", "memory.reread_busy_pct", "memory.reread_s"),
        source="workingset_refault_file (mm/workingset.c); 32 MB/s is a third of what one disk reads in sequence; "
        "io_ticks of /proc/diskstats (Documentation/admin-guide/iostats.rst)",
    ),
    Rule(
        name="swap-in-use",
        title="The host swaps, or has swapped much out",
        parts=_READ,
        check=swap_in_use,
        warm_up_s=10.0,
        settings=("memory.swap_pages_per_s", "memory.swap_s", "memory.swap_used_pct"),
        source="vmstat(8), si and so; story S12; check_swap of the monitoring plugins warns by share alone, which is "
        "no fault by itself",
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
        title="A setting of the kernel that costs a database its cache or its time",
        parts=("host.settings",),
        check=memory_settings,
        settings=("memory.thp_shared_buffers_bytes",),
        source="Documentation/admin-guide/sysctl/vm.rst, zone_reclaim_mode; PostgreSQL documentation, huge_pages "
        "(transparent huge pages are discouraged)",
    ),
)
