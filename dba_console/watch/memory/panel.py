"""What is shown of memory: page cache, free memory, reclaim and its cost."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import Pair, change, pair, rate
from dba_console.watch.panel import Charted, Panel, PanelFrame, Points
from dba_console.watch.samples import host


class NumaRow(Struct, kw_only=True):
    node: int
    total_bytes: int
    free_bytes: int
    numa_miss_per_s: float | None = None
    numa_foreign_per_s: float | None = None


class MemoryPanel(PanelFrame, kw_only=True):
    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    buffers_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    slab_bytes: int | None = None
    dirty_bytes: int | None = None
    writeback_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_per_s: float | None = None
    """Pages swapped in per second; 0 only if measured."""
    swap_out_per_s: float | None = None
    cached_change_bytes_per_s: float | None = None
    free_change_bytes_per_s: float | None = None
    reclaim_kswapd_bytes_per_s: float | None = None
    reclaim_direct_bytes_per_s: float | None = None
    reclaim_file_bytes_per_s: float | None = None
    alloc_stalls_per_s: float | None = None
    compact_stalls_per_s: float | None = None
    drop_pagecache_count: int | None = None
    """Number of page cache drops since boot."""
    refault_bytes_per_s: Annotated[float | None, Charted("read again", "host.vmstat")] = None
    major_faults_per_s: float | None = None
    psi_some_avg10: Annotated[float | None, Charted("memory some stall", "host.pressure")] = None
    psi_full_avg10: Annotated[float | None, Charted("memory full stall", "host.pressure")] = None
    zone_reclaim_mode: int | None = None
    thp: str | None = None
    thp_defrag: str | None = None
    huge_pages_total: int | None = None
    huge_pages_used: int | None = None
    huge_page_bytes: int | None = None
    shared_buffers_bytes: int | None = None
    numa_nodes: list[NumaRow] = []
    settings: dict[str, int | str | None] = {}


# How they follow from what was read.

_SETTINGS = (
    "swappiness", "dirty_ratio", "dirty_background_ratio", "watermark_scale_factor", "watermark_boost_factor",
    "min_free_kbytes", "overcommit_memory",
)  # fmt: skip


def derive_memory(facts: PictureFacts) -> MemoryPanel:
    """Return the memory panel; its status is that of /proc/meminfo, what else is missing is in the note."""
    picture = facts.picture
    panel = fill_status(MemoryPanel(), picture, "host.memory", "host.vmstat", "host.pressure", "host.settings")
    panel.shared_buffers_bytes = facts.size("shared_buffers")
    _levels(panel, picture.now("host.memory", host.MemInfo))
    _changes(panel, pair(picture, "host.memory", host.MemInfo))
    vmstat = picture.now("host.vmstat", host.VmStat)
    panel.drop_pagecache_count = None if vmstat is None else vmstat.drop_pagecache
    _reclaim(panel, pair(picture, "host.vmstat", host.VmStat))
    pressure = picture.now("host.pressure", host.Pressure)
    if pressure is not None:
        panel.psi_some_avg10 = None if pressure.memory_some is None else pressure.memory_some.avg10
        panel.psi_full_avg10 = None if pressure.memory_full is None else pressure.memory_full.avg10
    _settings(panel, picture.now("host.settings", host.HostSettings))
    _numa(panel, pair(picture, "host.settings", host.HostSettings))
    return panel


def _levels(panel: MemoryPanel, memory: host.MemInfo | None) -> None:
    if memory is None:
        return
    panel.total_bytes, panel.free_bytes, panel.available_bytes = memory.total, memory.free, memory.available
    panel.cached_bytes, panel.buffers_bytes = memory.cached, memory.buffers
    panel.anon_bytes, panel.shmem_bytes, panel.slab_bytes = memory.anon, memory.shmem, memory.slab
    panel.dirty_bytes, panel.writeback_bytes = memory.dirty, memory.writeback
    panel.swap_total_bytes = memory.swap_total
    panel.swap_used_bytes = max(0, memory.swap_total - memory.swap_free)
    panel.huge_pages_total, panel.huge_page_bytes = memory.huge_total, memory.huge_page_size
    if memory.huge_total is not None and memory.huge_free is not None:
        panel.huge_pages_used = max(0, memory.huge_total - memory.huge_free)


def _changes(panel: MemoryPanel, both: Pair[host.MemInfo] | None) -> None:
    if both is not None:
        panel.cached_change_bytes_per_s = change(both.new.cached, both.old.cached, both.seconds)
        panel.free_change_bytes_per_s = change(both.new.free, both.old.free, both.seconds)


def _reclaim(panel: MemoryPanel, both: Pair[host.VmStat] | None) -> None:
    """Reclaim rates: by kswapd in the background, directly by an allocating process, or by a cgroup's limit.

    pgsteal_file counts all file pages, pgsteal_kswapd and _direct leave out a cgroup's own reclaim (mm/vmscan.c).
    """
    if both is None:
        return
    new, old, seconds = both
    page = float(new.page_size)
    panel.reclaim_kswapd_bytes_per_s = rate(new.pgsteal_kswapd, old.pgsteal_kswapd, seconds, page)
    panel.reclaim_direct_bytes_per_s = rate(new.pgsteal_direct, old.pgsteal_direct, seconds, page)
    panel.reclaim_file_bytes_per_s = rate(new.pgsteal_file, old.pgsteal_file, seconds, page)
    panel.refault_bytes_per_s = rate(new.refault_file, old.refault_file, seconds, page)
    panel.swap_in_per_s = rate(new.pswpin, old.pswpin, seconds)
    panel.swap_out_per_s = rate(new.pswpout, old.pswpout, seconds)
    panel.alloc_stalls_per_s = rate(new.allocstall, old.allocstall, seconds)
    panel.compact_stalls_per_s = rate(new.compact_stall, old.compact_stall, seconds)
    panel.major_faults_per_s = rate(new.pgmajfault, old.pgmajfault, seconds)


def _settings(panel: MemoryPanel, settings: host.HostSettings | None) -> None:
    if settings is None:
        return
    panel.zone_reclaim_mode = settings.zone_reclaim_mode
    panel.thp, panel.thp_defrag = settings.thp, settings.thp_defrag
    panel.settings = {name: getattr(settings, name) for name in _SETTINGS}
    panel.numa_nodes = [NumaRow(node=node.node, total_bytes=node.total, free_bytes=node.free) for node in settings.numa]


def _numa(panel: MemoryPanel, both: Pair[host.HostSettings] | None) -> None:
    if both is None:
        return
    rows = {row.node: row for row in panel.numa_nodes}
    before = {node.node: node for node in both.old.numa}
    for new in both.new.numa:
        old, row = before.get(new.node), rows.get(new.node)
        if old is not None and row is not None:
            row.numa_miss_per_s = rate(new.numa_miss, old.numa_miss, both.seconds)
            row.numa_foreign_per_s = rate(new.numa_foreign, old.numa_foreign, both.seconds)


# The chart values of a tick: of the readings alone, since deriving the panel would cost more.


def points(facts: PictureFacts) -> Points:
    """Return the levels, the rates of reclaim, and the pressure."""
    found: dict[str, float | None] = {}
    for add in (_level_points, _reclaim_points, _pressure_points):
        add(found, facts)
    return found


def _level_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    memory = facts.picture.now("host.memory", host.MemInfo)
    if memory is None or not facts.was_read_now("host.memory"):
        return
    point["memory.free_bytes"] = memory.free
    point["memory.available_bytes"] = memory.available
    point["memory.cached_bytes"] = memory.cached
    point["memory.dirty_bytes"] = memory.dirty
    point["memory.swap_used_bytes"] = memory.swap_total - memory.swap_free


def _reclaim_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    both = pair(facts.picture, "host.vmstat", host.VmStat)
    if both is None or not facts.was_read_now("host.vmstat"):
        return
    new, old, seconds = both
    page = float(new.page_size)
    point["memory.reclaim_kswapd_bytes_per_s"] = rate(new.pgsteal_kswapd, old.pgsteal_kswapd, seconds, page)
    point["memory.reclaim_direct_bytes_per_s"] = rate(new.pgsteal_direct, old.pgsteal_direct, seconds, page)
    point["memory.refault_bytes_per_s"] = rate(new.refault_file, old.refault_file, seconds, page)
    point["memory.alloc_stalls_per_s"] = rate(new.allocstall, old.allocstall, seconds)
    point["memory.drop_pagecache_per_s"] = change(new.drop_pagecache, old.drop_pagecache, seconds)


def _pressure_points(point: dict[str, float | None], facts: PictureFacts) -> None:
    now = facts.picture.now("host.pressure", host.Pressure)
    if now is None or not facts.was_read_now("host.pressure"):
        return
    point["memory.psi_some_avg10"] = None if now.memory_some is None else now.memory_some.avg10
    point["memory.psi_full_avg10"] = None if now.memory_full is None else now.memory_full.avg10


PANEL = Panel(name="memory", fields=MemoryPanel, derive=derive_memory, points=points)
