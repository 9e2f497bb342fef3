"""Why page cache went: the decision table, from what the kernel counted while it fell. Pure.

Every page that left the cache was dropped on request, freed with its file, or reclaimed; and what was reclaimed was
taken by one of few actors, each with a counter of its own. The largest part names the cause. pgsteal_file counts all
reclaim of file pages, the counters by actor leave out what a memory cgroup's limit took (mm/vmscan.c,
shrink_inactive_list: `if (!cgroup_reclaim(sc))`), so the difference is the cgroups'.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimCounts:
    """What was counted while page cache fell. Bytes, or events; None where this kernel does not count it."""

    fell: int
    """Bytes by which the cache fell, over the readings in which it did."""
    dropped: int | None = None
    """Times somebody wrote to drop_caches."""
    file: int | None = None
    """Bytes of file pages reclaimed, by whomever."""
    kswapd: int | None = None
    direct: int | None = None
    khugepaged: int | None = None
    proactive: int | None = None
    zone: int | None = None
    """Times a node reclaimed its own pages instead of taking another node's (vm.zone_reclaim_mode)."""
    alloc_stalls: int | None = None
    compact_stalls: int | None = None
    huge_pages: int = 0
    """Bytes by which the pool of huge pages grew."""
    full_node: int | None = None
    """A node that has far less free memory than the others, and sent its requests to them."""
    short: bool | None = None
    """Memory was short when it began; None where that cannot be told."""


@dataclass(frozen=True, slots=True)
class ReclaimCause:
    """`name` for the evidence, `text` for the sentence; `reclaimed` False where the kernel was told to let go."""

    name: str
    text: str
    reclaimed: bool
    advice: str


DROPPED = ReclaimCause(
    "drop_caches", "somebody wrote drop_caches", True,
    "dmesg names the process that wrote drop_caches, unless it asked not to be named; look through cron as well.",
)  # fmt: skip
FREED = ReclaimCause(
    "file freed", "a file was freed", False,
    "A large file was truncated or removed: a dropped table, an old backup, a file system unmounted.",
)  # fmt: skip
FREED_OR_CGROUP = ReclaimCause(
    "file freed or cgroup", "a file was freed, or a memory cgroup's limit", False,
    "This kernel does not tell reclaim for a control group from a freed file: see memory.failcnt of the groups.",
)  # fmt: skip
CGROUP = ReclaimCause(
    "cgroup", "a memory cgroup's limit", True,
    "Look at memory.events (high, max) of the control groups, of the server's unit first, and at memory.max there.",
)  # fmt: skip
KSWAPD = ReclaimCause(
    "kswapd overshoot", "kswapd, no shortage", True,
    "The kernel freed far more than it needed: vm.watermark_boost_factor=0 stops reclaim after fragmentation; "
    "raise vm.watermark_scale_factor in small steps.",
)  # fmt: skip
KSWAPD_SHORT = ReclaimCause(
    "kswapd", "kswapd, memory was short", True, "See which process grew; the cache gave way to it."
)
KSWAPD_UNKNOWN = ReclaimCause("kswapd", "kswapd", True, "See vm.min_free_kbytes and vm.watermark_scale_factor.")
ZONE = ReclaimCause(
    "zone_reclaim_mode", "zone_reclaim_mode", True,
    "Set vm.zone_reclaim_mode=0: a node reclaims its own cache while others have memory free.",
)  # fmt: skip
DIRECT = ReclaimCause(
    "direct reclaim", "direct reclaim", True,
    "Processes reclaim memory themselves before they get a page: raise vm.watermark_scale_factor.",
)  # fmt: skip
COMPACTION = ReclaimCause(
    "compaction", "compaction for huge pages", True,
    "Set transparent_hugepage/defrag to defer+madvise, or transparent huge pages to never.",
)  # fmt: skip
PROACTIVE = ReclaimCause(
    "memory.reclaim", "memory.reclaim by a program", True,
    "A program writes to memory.reclaim of a control group: look for a memory tiering or container agent.",
)  # fmt: skip
HUGE_PAGES = ReclaimCause(
    "huge pages", "the pool of huge pages grew", True, "vm.nr_hugepages was raised; its pages are nobody else's."
)
UNKNOWN = ReclaimCause("unknown", "cause not known", True, "This kernel does not count who reclaims memory.")


def find_reclaim_cause(taken: ReclaimCounts) -> ReclaimCause:
    """The row of the decision table that explains most of the fall."""
    parts = _bytes_by_actor(taken)
    if not parts:
        return DROPPED if taken.dropped else UNKNOWN
    if taken.huge_pages >= taken.fell / 2:
        return HUGE_PAGES
    name = max(parts, key=parts.__getitem__)
    match name:
        case "freed" if taken.dropped:
            return DROPPED
        case "freed":
            return FREED if taken.file is not None else FREED_OR_CGROUP
        case "cgroup":
            return CGROUP
        case "proactive":
            return PROACTIVE
        case "khugepaged":
            return COMPACTION
    if taken.zone:
        return ZONE
    if taken.full_node is not None:
        return _numa_cause(taken.full_node)
    return _direct_cause(taken) if name == "direct" else _kswapd_cause(taken)


def _bytes_by_actor(taken: ReclaimCounts) -> dict[str, int]:
    """Bytes by where they went; nothing where reclaim is not counted at all."""
    actors = {
        name: value
        for name, value in (
            ("kswapd", taken.kswapd), ("direct", taken.direct),
            ("khugepaged", taken.khugepaged), ("proactive", taken.proactive),
        )
        if value is not None
    }  # fmt: skip
    named = sum(actors.values())
    if taken.file is None:
        # Before 5.8 nothing counts all reclaim: what no actor took was a cgroup's, or freed.
        return {"freed": taken.fell - named, **actors} if actors else {}
    cgroup = {"cgroup": taken.file - named} if actors else {}
    return {"freed": taken.fell - taken.file, **cgroup, **actors}


def _kswapd_cause(taken: ReclaimCounts) -> ReclaimCause:
    if taken.short is None:
        return KSWAPD_UNKNOWN
    return KSWAPD_SHORT if taken.short else KSWAPD


def _direct_cause(taken: ReclaimCounts) -> ReclaimCause:
    """A process that compacts for a huge page reclaims too; one that needs any page stalls and does not compact."""
    compacting = (taken.compact_stalls or 0) > (taken.alloc_stalls or 0)
    return COMPACTION if compacting else DIRECT


def _numa_cause(node: int) -> ReclaimCause:
    return ReclaimCause(
        "NUMA imbalance", f"NUMA node {node} is full while others are not", True,
        "Start the server with numactl --interleave=all, or see numastat for who fills that node.",
    )  # fmt: skip
