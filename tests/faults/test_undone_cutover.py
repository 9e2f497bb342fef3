"""A cutover that is undone never makes a second primary, whatever happened to the other nodes meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from dba_console.demo.practice_cluster import PracticeCluster
from tests.background import wait_until
from tests.faults.test_cutover_faults import CutoverTrial, unwrapped
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("cutover")


@pytest.fixture
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutoverTrial]:
    require_tool("pgbouncer")
    with PracticeCluster() as ground:
        yield CutoverTrial(ground, tmp_path_factory.mktemp("cutovers"))


def assert_down(trial: CutoverTrial) -> None:
    assert not trial.db1.running
    assert (trial.db1.data_directory / "standby.signal").exists(), "it could start as a primary"


def test_an_undo_does_not_start_the_old_primary_while_a_node_cannot_be_asked_or_after_another_was_promoted(
    trial: CutoverTrial,
) -> None:
    db3, pooler = trial.ground.nodes["db3"], trial.ground.pooler
    postmaster = db3.pid
    assert pooler is not None and postmaster is not None

    def freeze_a_node() -> None:
        os.kill(postmaster, signal.SIGSTOP)
        pooler.stop()  # so that the promotion is refused, and the run undone

    try:
        done = trial.run_cutover("fence", freeze_a_node)
    finally:
        os.kill(postmaster, signal.SIGCONT)
    text = unwrapped(done.out)
    assert "db1 is not started as a primary: whether another node was promoted is unknown (db3: " in text, done
    assert f"remove {trial.db1.data_directory}/standby.signal and run `" in text, done
    assert_down(trial)

    (trial.db1.data_directory / "standby.signal").unlink()  # as that text advises, once db3 has answered
    trial.db1.start()
    pooler.launch()
    for database in trial.db1.psql("select datname from pg_database where datconnlimit = 0").split():
        trial.db1.psql(f'alter database "{database}" connection limit -1')
    for statement in (
        "alter role postgres reset dba_console.cutover",
        "select pg_drop_replication_slot('dba_console_cutover')",
    ):
        trial.db1.psql(statement)
    wait_until(lambda: trial.db1.psql("select count(*) from pg_stat_replication") == "2", what="two standbys")

    def fail_over_to_another_node() -> None:
        db3.psql("select pg_promote()")
        db3.stop()  # what it leaves is in its files only

    done = trial.run_cutover("fence", fail_over_to_another_node)
    text = unwrapped(done.out)
    assert "db3 has timeline 2 in its data directory, db1 was on 1" in text, done
    assert "would make two primaries" in text and "make it a standby of the new primary" in text, done
    assert_down(trial)
    assert not trial.db2.is_primary(), "the promotion of db2 would make two primaries as well"
