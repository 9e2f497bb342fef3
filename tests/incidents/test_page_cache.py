"""Page cache is reclaimed in the gentlest way the host has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from dba_console.demo.incidents.loop_disk import MIB
from dba_console.demo.incidents.reclaim_stall import DROP_CACHES, cache_bytes, choose_method


def test_if_no_control_group_can_be_made_the_host_cache_is_dropped_and_that_is_reported(tmp_path: Path) -> None:
    way = choose_method(tmp_path)
    assert way is DROP_CACHES
    assert "whole page cache" in way.description
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_a_control_group_is_not_used_as_one(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    assert choose_method(tmp_path) is DROP_CACHES
    assert [path.name for path in tmp_path.rglob("*")] == ["memory"]


def test_at_most_a_third_of_the_available_memory_is_cached() -> None:
    assert cache_bytes(1 * MIB) == 1 * MIB
    assert cache_bytes(1 << 60) == pytest.approx(psutil.virtual_memory().available // 3, rel=0.2)
