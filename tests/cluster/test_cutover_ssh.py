"""The runbook `cutover` where every node is behind ssh, and its connections are cut in the middle of the steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dba_console.demo.practice_cluster import PracticeCluster
from tests.cli import prefork
from tests.cli.console import Console, own_console
from tests.cluster.test_cutover import HOLD, PROMOTE, primary, run_cutover, wait_for_client_commit
from tests.processes import contents
from tests.requirements import require_tool
from tests.sshd import NAME, Sshd, sshd

pytestmark = pytest.mark.xdist_group("sshd")
MARKS = ("\0stopped\0", "global/pg_control", "standby.signal", "pg_ctl\0start", "\0ready\0")
"""In the arguments of what waits for the stop, passes the gate, fences, and starts the old primary as a standby."""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    prefork.server()  # with the path as it is: what mentions the run's directory at its end counts as left behind
    with sshd(tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(scope="module")
def practice(remote: Sshd) -> Iterator[PracticeCluster]:
    require_tool("pgbouncer")
    with PracticeCluster() as made:
        text = made.config_file.read_text().replace('control = "pg_ctl"', f'control = "pg_ctl"\nssh = "{NAME}"')
        assert text.count(NAME) == 3
        made.config_file.write_text(text)
        yield made


@pytest.fixture(scope="module")
def console(practice: PracticeCluster) -> Iterator[Console]:
    with own_console() as made, made.watching(practice.dsn, **practice.environment):
        yield made


@contextmanager
def cut_connections(remote: Sshd) -> Iterator[set[str]]:
    """Cut all connections the first time that each of the marks is seen on the other side; gives those that were."""
    cut: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005) and len(cut) < len(MARKS):
            for _pid, line in contents("cmdline"):
                found = {mark for mark in MARKS if mark.encode() in line} - cut
                if found and b"ControlPath" not in line:
                    remote.cut()
                    cut.update(found)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield cut
    finally:
        over.set()
        thread.join()


def test_a_cutover_continues_by_evidence_whenever_its_connections_are_cut(
    console: Console, practice: PracticeCluster, remote: Sshd
) -> None:
    with cut_connections(remote) as cut:
        done = run_cutover(console, practice, "db2", f"{HOLD}=yes", f"{PROMOTE}=db2")
    assert done.code == 0, done
    assert cut, "what is short may not have been seen"
    assert primary(practice) == ["db2"]
    wait_for_client_commit(practice)
    assert practice.verdict().all_kept, practice.verdict().sentence()
