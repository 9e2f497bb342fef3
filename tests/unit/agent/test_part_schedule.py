"""Every part is read at its cadence, and no second pays for all slow parts together."""

from __future__ import annotations

from dba_console.agent.source import due_parts
from dba_console.watch.samples.sample import PARTS

NAMES = list(PARTS)


def test_the_first_tick_reads_everything() -> None:
    assert due_parts(NAMES, 0, 1.0) == NAMES


def test_each_part_is_read_once_per_period() -> None:
    for name, kind in PARTS.items():
        ticks = [tick for tick in range(1, 3 * kind.every_s + 1) if due_parts([name], tick, 1.0)]
        assert len(ticks) == 3, name


def test_a_longer_interval_reads_a_slow_part_equally_often_in_time() -> None:
    assert sum(bool(due_parts(["pg.replication"], tick, 2.0)) for tick in range(1, 31)) == 30
    assert sum(bool(due_parts(["pg.xids"], tick, 2.0)) for tick in range(1, 61)) == 4


def test_slow_parts_are_spread_over_ticks() -> None:
    slow = [name for name, kind in PARTS.items() if kind.every_s >= 10]
    assert max(len(due_parts(slow, tick, 1.0)) for tick in range(1, 301)) < len(slow)
