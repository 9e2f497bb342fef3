"""The parts read about memory: /proc/meminfo, /proc/vmstat, kernel settings and NUMA nodes.

Their structs are in `samples/host.py`, their readers in `probes/host/kernel_counters.py`.
"""

from __future__ import annotations

from dba_console.watch.part import PartKind
from dba_console.watch.samples import host

PARTS = (
    PartKind("host.memory", host.MemInfo, 1, "free, cached, dirty, swap, huge pages"),
    PartKind("host.vmstat", host.VmStat, 1, "reclaim, stalls, compaction, refaults"),
    PartKind("host.settings", host.HostSettings, 10, "kernel settings, NUMA nodes"),
)
