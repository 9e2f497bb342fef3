"""Memory and its reclaim."""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.memory.panel import MemoryPanel, derive_memory
from dba_console.watch.samples import host
from tests.build import GB, series
from tests.readings import of, server


def memory(latest: Picture) -> MemoryPanel:
    return derive_memory(PictureFacts(latest, ChartHistory()))


def test_cached_falls_while_free_rises() -> None:
    before = of(host.MemInfo, total=16 * GB, cached=10 * GB, free=1 * GB)
    after = of(host.MemInfo, total=16 * GB, cached=8 * GB, free=3 * GB)
    panel = memory(series({"host.memory": [before, after]}, step_s=2))
    assert (panel.cached_change_bytes_per_s, panel.free_change_bytes_per_s) == (-1.0 * GB, 1.0 * GB)


def test_reclaim_is_shown_by_reclaimer() -> None:
    before = of(host.VmStat, page_size=4096, pgsteal_kswapd=0, pgsteal_direct=5, drop_pagecache=3)
    after = of(host.VmStat, page_size=4096, pgsteal_kswapd=100, pgsteal_direct=5, drop_pagecache=4)
    panel = memory(series({"host.vmstat": [before, after]}))
    assert (panel.reclaim_kswapd_bytes_per_s, panel.reclaim_direct_bytes_per_s) == (409_600.0, 0.0)
    assert panel.drop_pagecache_count == 4


def test_a_counter_missing_in_this_kernel_is_unknown_and_not_zero() -> None:
    one = of(host.VmStat, page_size=4096)
    panel = memory(series({"host.vmstat": [one, one]}))
    assert (panel.alloc_stalls_per_s, panel.swap_in_per_s, panel.drop_pagecache_count) == (None, None, None)


def test_huge_pages_used_are_those_not_free() -> None:
    panel = memory(series({"host.memory": [of(host.MemInfo, huge_total=100, huge_free=30)]}))
    assert (panel.huge_pages_total, panel.huge_pages_used) == (100, 70)


def test_shared_buffers_are_shown_in_bytes() -> None:
    assert memory(series({"pg.server": [server()]})).shared_buffers_bytes == 32 * GB


def test_numa_misses_are_rates_per_node() -> None:
    def settings(miss: int) -> host.HostSettings:
        return of(host.HostSettings, numa=[host.NumaNode(0, 8 * GB, GB, None, miss, None)])

    panel = memory(series({"host.settings": [settings(100), settings(300)]}, step_s=10))
    assert (panel.numa_nodes[0].numa_miss_per_s, panel.numa_nodes[0].numa_foreign_per_s) == (20.0, None)
