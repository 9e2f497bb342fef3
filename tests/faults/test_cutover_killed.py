"""Whatever is killed in the middle of a cutover, it ends with one primary, its standbys, and every acknowledged commit.

A sample of the most dangerous places; `python -m bench cutover_killed` tries all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.practice_cluster import PracticeCluster
from tests.faults.cutover_kills import CutoverTrials, Kill, supervised


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutoverTrials]:
    with PracticeCluster() as ground, supervised(ground):
        yield CutoverTrials(ground, tmp_path_factory.mktemp("cutovers"))


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([Kill("agent", "stop", "end"), Kill("agent", "promote", "end")], id="agents"),
        pytest.param([Kill("pooler", "stop")], id="pooler"),
        pytest.param([Kill("console", "promote")], id="console"),
    ],
)
def test_a_cutover_ends_complete_whatever_is_killed_during_it(trials: CutoverTrials, kills: list[Kill]) -> None:
    ended = trials.cut_over(*kills)
    assert ended.state == "done", ended
    trials.assert_whole(ended)
