"""Directories that look like /proc and /sys, and texts of kernels that are not this one's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

RHEL6 = """\
nr_free_pages 1000
pgpgin 500
pgpgout 600
pswpin 1
pswpout 2
pgfault 9000
pgmajfault 10
pgsteal_dma 1
pgsteal_dma32 20
pgsteal_normal 300
pgsteal_movable 0
pgscan_kswapd_dma 2
pgscan_kswapd_dma32 40
pgscan_kswapd_normal 600
pgscan_kswapd_movable 0
pgscan_direct_dma 0
pgscan_direct_dma32 7
pgscan_direct_normal 80
pgscan_direct_movable 0
zone_reclaim_failed 3
pginodesteal 0
slabs_scanned 4096
kswapd_steal 290
kswapd_inodesteal 0
kswapd_low_wmark_hit_quickly 5
kswapd_high_wmark_hit_quickly 6
pageoutrun 11
allocstall 12
compact_stall 13
compact_fail 9
compact_success 4
thp_fault_alloc 21
thp_fault_fallback 22
thp_collapse_alloc 23
numa_miss 31
numa_foreign 32
"""
"""Kernel 2.6.32: reclaim by zone for everybody, kswapd's share beside it, no refaults, no drop counters."""

KERNEL_3_10 = """\
pgpgin 500
pgpgout 600
pgsteal_kswapd_dma 1
pgsteal_kswapd_dma32 20
pgsteal_kswapd_normal 300
pgsteal_kswapd_movable 4000
pgsteal_direct_dma 0
pgsteal_direct_dma32 5
pgsteal_direct_normal 60
pgsteal_direct_movable 0
pgscan_kswapd_dma 1
pgscan_kswapd_dma32 30
pgscan_kswapd_normal 400
pgscan_kswapd_movable 5000
pgscan_direct_dma 0
pgscan_direct_dma32 6
pgscan_direct_normal 70
pgscan_direct_movable 0
pgscan_direct_throttle 99
zone_reclaim_failed 0
kswapd_low_wmark_hit_quickly 5
allocstall 12
drop_pagecache 2
drop_slab 1
compact_migrate_scanned 44
compact_free_scanned 55
compact_stall 13
workingset_refault 77
workingset_activate 7
"""

KERNEL_4_19 = """\
pgpgin 500
pgpgout 600
allocstall_dma 0
allocstall_dma32 1
allocstall_normal 20
allocstall_movable 300
pgsteal_kswapd 4000
pgsteal_direct 60
pgscan_kswapd 5000
pgscan_direct 70
pgscan_direct_throttle 99
zone_reclaim_failed 0
drop_pagecache 2
drop_slab 1
oom_kill 3
workingset_refault 77
compact_free_scanned 55
compact_daemon_free_scanned 50
"""

KERNEL_6_1 = """\
pgpgin 500
pgpgout 600
pswpin 1
pswpout 2
allocstall_dma 0
allocstall_dma32 1
allocstall_normal 20
allocstall_movable 300
allocstall_device 0
pgsteal_kswapd 4000
pgsteal_direct 60
pgsteal_khugepaged 7
pgsteal_proactive 8
pgscan_kswapd 5000
pgscan_direct 70
pgscan_khugepaged 9
pgscan_direct_throttle 99
pgscan_anon 1
pgscan_file 2
pgsteal_anon 70
pgsteal_file 4005
zone_reclaim_success 5
zone_reclaim_failed 6
drop_pagecache 2
drop_slab 1
oom_kill 3
workingset_refault_anon 70
workingset_refault_file 77
"""

MEMINFO_3_10 = """\
MemTotal:       16000000 kB
MemFree:         1000000 kB
Buffers:           10000 kB
Cached:          8000000 kB
SwapCached:            0 kB
Active:          8000000 kB
Inactive:        2100000 kB
Active(file):    5000000 kB
Inactive(file):  2000000 kB
SwapTotal:       4000000 kB
SwapFree:        3999996 kB
Dirty:              1234 kB
Writeback:             8 kB
AnonPages:       3000000 kB
Shmem:            400000 kB
Slab:             200000 kB
SReclaimable:     150000 kB
CommitLimit:    12000000 kB
Committed_AS:    6000000 kB
HugePages_Total:     512
HugePages_Free:      500
HugePages_Rsvd:       10
Hugepagesize:       2048 kB
"""

STAT = """\
cpu  10 20 30 4000 50 6 7 8 9 0
cpu0 5 10 15 2000 25 3 3 4 4 0
cpu1 5 10 15 2000 25 3 4 4 5 0
intr 12345 0 0 1
ctxt 987654
btime 1700000000
processes 4321
procs_running 3
procs_blocked 2
softirq 1 2 3
"""


def write_tree(base: Path, files: Mapping[str, str | bytes]) -> str:
    """Write each file below `base`; gives its path."""
    for name, content in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(base)


def stat_line(
    pid: int, *, parent: int = 1, command: str = "postgres", state: str = "S", user: int = 0, system: int = 0,
    start: int = 100, rss: int = 10, blkio: int = 0,
) -> str:  # fmt: skip
    """A /proc/PID/stat with 52 fields."""
    words = [state, str(parent), *["0"] * 9, str(user), str(system), *["0"] * 6, str(start), "0", str(rss)]
    words += ["0"] * (39 - len(words)) + [str(blkio)] + ["0"] * 10
    return f"{pid} ({command}) {' '.join(words)}\n"


def io_text(read: int, written: int) -> str:
    return (
        f"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: {read}\nwrite_bytes: {written}\n"
        "cancelled_write_bytes: 0\n"
    )
