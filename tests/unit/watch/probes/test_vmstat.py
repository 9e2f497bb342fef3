"""Counters of kernels that name and split them differently."""

from __future__ import annotations

import pytest

from dba_console.watch.probes.host.kernel_counters import VmStatParser
from dba_console.watch.samples.host import VmStat
from tests.unit.watch.probes.proc_trees import KERNEL_3_10, KERNEL_4_19, KERNEL_6_1, RHEL6


def parse(text: str) -> VmStat:
    return VmStatParser(4096).parse(text.encode())


def test_kernel_2_6_32_separates_kswapd_and_direct_reclaim_is_the_rest() -> None:
    reading = parse(RHEL6)
    assert reading.pgsteal_kswapd == 290
    assert reading.pgsteal_direct == 321 - 290
    assert reading.pgscan_kswapd == 642
    assert reading.pgscan_direct == 87
    assert reading.allocstall == 12
    assert reading.numa_foreign == 32


def test_kernel_3_10_is_summed_over_its_zones() -> None:
    reading = parse(KERNEL_3_10)
    assert reading.pgsteal_kswapd == 4321
    assert reading.pgsteal_direct == 65
    assert reading.pgscan_direct == 76
    assert reading.allocstall == 12
    assert reading.compact_free_scanned == 55


def test_kernel_4_19_splits_stalls_by_zone_but_no_longer_reclaim() -> None:
    reading = parse(KERNEL_4_19)
    assert reading.allocstall == 321
    assert reading.pgsteal_kswapd == 4000
    assert reading.oom_kill == 3
    assert reading.compact_free_scanned == 55


def test_kernel_6_1_has_every_reclaimer_and_both_kinds_of_pages() -> None:
    reading = parse(KERNEL_6_1)
    assert (reading.pgsteal_khugepaged, reading.pgsteal_proactive) == (7, 8)
    assert (reading.pgsteal_file, reading.pgsteal_anon) == (4005, 70)
    assert (reading.refault_file, reading.refault_anon) == (77, 70)


@pytest.mark.parametrize("text", [KERNEL_3_10, KERNEL_4_19, KERNEL_6_1])
def test_throttling_does_not_count_as_scanning(text: str) -> None:
    throttle = 99
    scanned = parse(text).pgscan_direct
    assert scanned is not None
    assert scanned < throttle


@pytest.mark.parametrize("text", [KERNEL_3_10, KERNEL_4_19])
def test_before_5_9_a_refault_was_always_that_of_a_file_page(text: str) -> None:
    assert parse(text).refault_file == 77
    assert parse(text).refault_anon is None


def test_a_counter_the_kernel_does_not_have_is_unknown_and_not_zero() -> None:
    reading = parse(RHEL6)
    assert reading.drop_pagecache is None
    assert reading.refault_file is None
    assert reading.pgsteal_file is None
    assert parse("pgpgin 1\n").pgsteal_direct is None


def test_the_next_reading_returns_the_next_numbers() -> None:
    parser = VmStatParser(4096)
    parser.parse(KERNEL_6_1.encode())
    later = parser.parse(KERNEL_6_1.replace("drop_pagecache 2", "drop_pagecache 3").encode())
    assert later.drop_pagecache == 3


def test_a_vmstat_file_with_new_lines_is_parsed_again() -> None:
    parser = VmStatParser(4096)
    parser.parse(KERNEL_4_19.encode())
    assert parser.parse(("nr_new_thing 5\n" + KERNEL_4_19).encode()).oom_kill == 3


def test_anything_but_names_and_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="names and numbers"):
        parse("pgpgin\n")
