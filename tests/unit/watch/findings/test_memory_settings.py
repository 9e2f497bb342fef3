"""Swap that costs time and swap that does not; settings that cost a database its cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dba_console.watch.findings.thresholds import Limits, RuleThresholds
from dba_console.watch.memory.kernel_rules import MemoryLimits
from dba_console.watch.memory.reclaim_monitor import CacheFallLimits
from dba_console.watch.memory.rules import FAMILY
from tests.unit.watch.findings.host_ticks import GB, HostTicks


def swapping(pages_in: int, pages_out: int, *limits: RuleThresholds) -> HostTicks:
    hosting = HostTicks(*FAMILY.rules, limits=Limits(*limits))
    hosting.memory |= {"swap_total": 8 * GB, "swap_free": 7 * GB}
    hosting.seconds(15, counted={"pswpin": pages_in, "pswpout": pages_out})
    return hosting


def test_ten_seconds_of_swap_in_and_out_are_a_warning() -> None:
    hosting = swapping(400, 700)
    found = hosting.one("swap-in-use")
    assert found.severity == "warning"
    assert found.text == (
        "The host swaps: 400 pages/s come in while 700 pages/s go out, 1.0 GB of 8.0 GB swap used (12%)"
    )


def test_swapping_is_measured_over_the_window_of_the_page_cache_if_that_is_shorter() -> None:
    assert swapping(400, 700, CacheFallLimits(window_s=5.0)).one("swap-in-use").severity == "warning"


@pytest.mark.parametrize(("pages_in", "pages_out"), [(400, 0), (0, 700), (0, 0)])
def test_traffic_in_one_direction_or_none_is_not_a_finding(pages_in: int, pages_out: int) -> None:
    assert swapping(pages_in, pages_out).open == []


def test_much_used_swap_without_traffic_is_a_note_and_not_a_problem() -> None:
    hosting = HostTicks(*FAMILY.rules)
    hosting.memory |= {"swap_total": 8 * GB, "swap_free": 3 * GB}
    assert [(row.id, row.severity) for row in hosting.ticks(3)] == [("swap-in-use", "info")]


def test_a_host_without_swap_reports_nothing_of_it() -> None:
    hosting = HostTicks(*FAMILY.rules)
    hosting.memory |= {"swap_total": 0, "swap_free": 0}
    assert hosting.seconds(15, counted={"pswpin": 0, "pswpout": 0}) == []


def test_zone_reclaim_is_a_warning_with_the_recommended_setting() -> None:
    hosting = HostTicks(*FAMILY.rules)
    hosting.settings = structs.replace(hosting.settings, zone_reclaim_mode=1)
    [found] = hosting.tick()
    assert (found.id, found.severity) == ("memory-settings:zone_reclaim_mode", "warning")
    assert found.advice and "vm.zone_reclaim_mode=0" in found.advice


def test_huge_pages_on_demand_are_a_note_if_shared_buffers_are_big() -> None:
    always = {"thp": "always", "thp_defrag": "always"}
    hosting = HostTicks(*FAMILY.rules)
    hosting.settings = structs.replace(hosting.settings, **always)
    [found] = hosting.tick()
    assert (found.id, found.severity) == ("memory-settings:transparent_hugepage", "info")
    document = (Path(__file__).parents[4] / "runbooks" / "cache-drop.md").read_text()
    assert found.advice and "echo madvise > " in found.advice
    assert 'key = "transparent_hugepage.defrag"\nvalue = "madvise"' in document, "the rule advises the same"
    small = HostTicks(*FAMILY.rules, limits=Limits(MemoryLimits(thp_shared_buffers_bytes=64 * GB)))
    small.settings = hosting.settings
    assert small.tick() == []
    madvise = HostTicks(*FAMILY.rules)
    madvise.settings = structs.replace(hosting.settings, thp_defrag="madvise")
    assert madvise.tick() == []
