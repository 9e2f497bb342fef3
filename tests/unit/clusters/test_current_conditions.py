"""Clocks of nodes that are apart: said before a cutover, for times in the database jump with it."""

from __future__ import annotations

import pytest

from dba_console.clusters.current_conditions import check_archive, check_clocks
from dba_console.clusters.node_state import NodeState


@pytest.mark.parametrize(
    ("primary_s", "target_s", "apart"),
    [(0.0, 240.0, "4m"), (-200.0, 100.0, "5m"), (240.0, 240.5, ""), (0.0, None, "")],
)
def test_clocks_minutes_apart_are_a_warning_with_the_difference(
    primary_s: float, target_s: float | None, apart: str
) -> None:
    """Each is known against our own clock: where ours alone is off, the nodes agree."""
    nodes = (NodeState(name=name, clock_apart_s=seconds) for name, seconds in (("db1", primary_s), ("db2", target_s)))
    found = list(check_clocks(*nodes))
    assert [(one.id, one.state) for one in found] == ([("clocks", "warning")] if apart else [])
    assert all(f"{apart}" in one.text and one.fix for one in found)


@pytest.mark.parametrize(("seconds", "slow"), [(25.0, True), (0.4, False), (None, False)])
def test_a_slow_archive_command_is_a_warning_with_the_time_per_file(seconds: float | None, slow: bool) -> None:
    archive = {"ready": 0, "failing": False, "seconds": seconds}
    primary = NodeState(name="db1", archive=archive, settings={"archive_mode": "on"})
    found = {one.id: one for one in check_archive(primary, NodeState(name="db2"))}
    assert found["archive"].state == "ok" and ("archive.slow" in found) is slow
    assert not slow or "archived 25s after it was complete" in found["archive.slow"].text
