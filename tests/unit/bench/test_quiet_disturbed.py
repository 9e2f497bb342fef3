"""An hour with gaps, clock steps and starts of the agent is the same hour, and has all three in it."""

from __future__ import annotations

from itertools import pairwise

from bench.quiet_load.disturbed import STEP_US, disturbed
from dba_console.watch.samples.sample import Sample

HOUR = [Sample(seq, 10**15 + seq * 1_000_000, seq * 1_000_000, [], "run") for seq in range(3600)]


def test_every_ten_minutes_one_minute_is_missing() -> None:
    pauses = [new.mono_us - old.mono_us for old, new in pairwise(disturbed(HOUR))]
    assert pauses.count(61_000_000) == 5
    assert set(pauses) == {1_000_000, 61_000_000}


def test_the_clock_is_set_an_hour_forward_and_back_twice() -> None:
    ahead = [sample.wall_us - 10**15 - sample.mono_us for sample in disturbed(HOUR)]
    changes = [new - old for old, new in pairwise(ahead) if new != old]
    assert changes == [STEP_US, -STEP_US, STEP_US, -STEP_US]


def test_the_agent_is_restarted_twice() -> None:
    boots = [sample.boot for sample in disturbed(HOUR)]
    assert sorted(set(boots)) == ["run", "run1", "run2"]
    assert boots == sorted(boots)
