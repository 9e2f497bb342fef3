"""The decision table, row by row: what the kernel counted while page cache fell names the cause, nothing else."""

from __future__ import annotations

import pytest

from dba_console.watch.memory.reclaim_monitor import (
    ReclaimCounts,
    find_fall,
    find_reclaim_cause,
    full_node,
    high_watermark,
    make_reading,
)
from dba_console.watch.samples import host
from tests.readings import of

GB = 1 << 30
FELL = 4 * GB

ROWS = {
    "drop_caches": ReclaimCounts(fell=FELL, dropped=1, file=0, kswapd=0, direct=0),
    "file freed": ReclaimCounts(fell=FELL, dropped=0, file=0, kswapd=0, direct=0),
    "cgroup": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=0, direct=0, proactive=0),
    "kswapd overshoot": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=FELL, direct=0, short=False),
    "kswapd": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=FELL, direct=0, short=True),
    "zone_reclaim_mode": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=0, direct=FELL, zone=900),
    "NUMA imbalance": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=FELL, direct=0, full_node=1, short=True),
    "direct reclaim": ReclaimCounts(
        fell=FELL, file=FELL, kswapd=GB, direct=3 * GB, alloc_stalls=9000, compact_stalls=3
    ),
    "compaction": ReclaimCounts(fell=FELL, file=FELL, kswapd=GB, direct=3 * GB, alloc_stalls=40, compact_stalls=5000),
    "memory.reclaim": ReclaimCounts(fell=FELL, dropped=0, file=FELL, kswapd=0, direct=0, proactive=FELL),
    "huge pages": ReclaimCounts(fell=FELL, file=FELL, kswapd=0, direct=FELL, huge_pages=FELL),
    "file freed or cgroup": ReclaimCounts(fell=FELL, dropped=0, kswapd=0, direct=0),
    "unknown": ReclaimCounts(fell=FELL),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_row_of_the_table_is_distinguished(name: str) -> None:
    assert find_reclaim_cause(ROWS[name]).name == name


@pytest.mark.parametrize("name", ROWS)
def test_a_freed_file_alone_is_not_reported_as_reclaim(name: str) -> None:
    assert find_reclaim_cause(ROWS[name]).reclaimed is not name.startswith("file freed")


def test_dropped_caches_are_not_named_as_the_cause_of_what_kswapd_reclaimed() -> None:
    assert find_reclaim_cause(
        ReclaimCounts(fell=FELL, dropped=1, file=FELL, kswapd=FELL, direct=0, short=False)
    ).name.startswith("kswap")


def test_a_little_reclaim_during_a_freed_file_does_not_name_the_cause() -> None:
    assert find_reclaim_cause(ReclaimCounts(fell=FELL, file=GB, kswapd=GB, direct=0, short=False)).name == "file freed"


def test_the_smaller_part_of_a_cgroup_does_not_name_the_cause() -> None:
    assert (
        find_reclaim_cause(ReclaimCounts(fell=FELL, file=FELL, kswapd=3 * GB, direct=0, short=False)).name
        == "kswapd overshoot"
    )


def test_a_kernel_without_reclaim_counters_still_reports_dropped_caches() -> None:
    assert find_reclaim_cause(ReclaimCounts(fell=FELL, dropped=1)).name == "drop_caches"


def _ticks(*levels: tuple[int, int], shmem: int = 0) -> list[object]:
    return [
        make_reading(
            of(host.MemInfo, total=128 * GB, cached=cached, free=free, shmem=shmem), None, at * 10**6, at * 10**6
        )
        for at, (cached, free) in enumerate(levels)
    ]


def test_a_fall_is_measured_from_the_end_of_the_plateau() -> None:
    fall = find_fall(_ticks((9 * GB, GB), (9 * GB, GB), (7 * GB, 3 * GB), (5 * GB, 5 * GB)), GB, 60)  # type: ignore[arg-type]
    assert fall is not None
    assert (fall.fell, fall.rose, fall.seconds) == (4 * GB, 4 * GB, 2.0)
    assert fall.began_wall_us == 1_000_000


def test_cache_replaced_by_a_program_is_not_a_fall() -> None:
    assert find_fall(_ticks((9 * GB, GB), (5 * GB, GB)), GB, 60) is None  # type: ignore[arg-type]


def test_cache_that_has_recovered_is_not_a_fall() -> None:
    levels = ((9 * GB, GB), (5 * GB, 5 * GB), (9 * GB, GB))
    assert find_fall(_ticks(*levels), GB, 60) is None  # type: ignore[arg-type]


def test_the_high_watermark_grows_with_the_scale_factor() -> None:
    """As /proc/zoneinfo of a host with 24 GB shows it, 67584 kB at least: 101 MB, and with a factor of 200 1 GB."""
    plain = high_watermark(24 * GB, of(host.HostSettings, min_free_kbytes=67584, watermark_scale_factor=10))
    scaled = high_watermark(24 * GB, of(host.HostSettings, min_free_kbytes=67584, watermark_scale_factor=200))
    assert plain is not None and scaled is not None
    assert plain < 200 << 20 < GB < scaled
    assert high_watermark(24 * GB, None) is None


def _nodes(*free: int, foreign: int = 0) -> host.HostSettings:
    nodes = [host.NumaNode(n, 64 * GB, each, None, 0, foreign if not each else 0) for n, each in enumerate(free)]
    return of(host.HostSettings, numa=nodes)


def test_the_numa_node_that_sends_its_requests_away_is_the_full_one() -> None:
    assert full_node(_nodes(0, 20 * GB, foreign=500), _nodes(0, 20 * GB)) == 0
    assert full_node(_nodes(0, 20 * GB, foreign=500), _nodes(0, 20 * GB, foreign=500)) is None, "nothing was sent away"
    assert full_node(_nodes(18 * GB, 20 * GB, foreign=500), _nodes(18 * GB, 20 * GB)) is None, "it is not full"
    assert full_node(_nodes(0), _nodes(0)) is None, "there is no other"
