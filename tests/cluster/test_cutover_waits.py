"""A cutover without a terminal that fails after the promotion waits, for clients are held, and is ended by `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.practice_cluster import PracticeCluster
from tests.cli.console import Console, own_console
from tests.cluster.test_cutover import HOLD, PROMOTE, connection_limits, query_node, run_cutover, wait_for_client_commit

pytestmark = pytest.mark.xdist_group("cutover")


@pytest.fixture(scope="module")
def moved_flag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The address moves once this file exists."""
    return tmp_path_factory.mktemp("address") / "moves"


@pytest.fixture(scope="module")
def practice(moved_flag: Path) -> Iterator[PracticeCluster]:
    with PracticeCluster() as made:
        address = f'\n[clusters.demo.addresses.vip]\nrun = ["/usr/bin/test", "-e", "{moved_flag}"]\n'
        made.config_file.write_text(made.config_file.read_text() + address)
        yield made


@pytest.fixture(scope="module")
def console(practice: PracticeCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(practice.dsn, **practice.environment):
        yield made


def is_writable(practice: PracticeCluster) -> bool:
    """Of db2: the old primary is not running."""
    return query_node(practice, "db2", "select pg_is_in_recovery()") == [(False,)]


def test_a_failure_after_the_promotion_waits_and_is_ended_by_an_operator_who_resumes(
    console: Console, practice: PracticeCluster, moved_flag: Path
) -> None:
    done = run_cutover(console, practice, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
    assert done.code == 7 and "past its point of no return" in done.out, done
    assert is_writable(practice) and connection_limits(practice, "db2") != {-1}, "clients are held still"
    again = console.run("runbook", "resume", "last", "--plain", stdin="", timeout=60, **practice.environment)
    assert again.code in (7, 130) and is_writable(practice), again
    moved_flag.touch()
    resumed = console.run(
        "runbook", "resume", "last", "--plain", stdin="retry\ndb2\ny\n", timeout=120, **practice.environment
    )
    assert resumed.code == 0, resumed.out
    assert "Continue “Promote” with: poolers and addresses point to the new primary" in resumed.out
    assert connection_limits(practice, "db2") == {-1}
    wait_for_client_commit(practice)
    found = practice.verdict()
    assert found.all_kept and found.acknowledged > 0, found.sentence()
