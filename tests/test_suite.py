"""What the suite itself promises: nothing of a killed run stays, a copied server is one of its own, alone is alone."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.host_locks import HostLocks
from tests.leftovers import Run, clear, loops_below, mounts_below, remove_stale, users_of
from tests.requirements import require_tool

_KILLED_RUN = """
import os, sys
from pathlib import Path
from tests.leftovers import Run
run = Run(Path(sys.argv[1]))
print(run.directory, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@contextmanager
def another_run(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run of another process, alive until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED_RUN, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.mark.root
def test_the_next_test_run_removes_mounts_loop_devices_and_processes_of_a_killed_one(parent: Path) -> None:
    with another_run(parent) as (run, directory):
        image, place = directory / "image", directory / "disk"
        place.mkdir()
        subprocess.run(["truncate", "-s", "16M", image], check=True)
        subprocess.run([require_tool("mkfs.ext4"), "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, cwd=place) as orphan:
            subprocess.run([require_tool("fsfreeze"), "-f", place], check=True)
            assert mounts_below(directory) == [place] and len(loops_below(directory)) == 1
            run.kill()
            run.wait()
            found = remove_stale(parent)
            assert orphan.wait(10) < 0
        assert [line.split()[0] for line in found] == ["process", "mount"]
        assert mounts_below(directory) == [] and loops_below(directory) == [] and not directory.exists()


def test_an_active_test_run_is_left_alone(parent: Path) -> None:
    with another_run(parent) as (_, directory):
        (directory / "file").touch()
        assert remove_stale(parent) == []
        assert (directory / "file").exists()


def test_a_clean_test_run_leaves_nothing_and_a_failed_one_keeps_its_files(parent: Path) -> None:
    passed, failed = Run(parent), Run(parent)
    (failed.directory / "log").touch()
    assert passed.end() == [] and not passed.directory.exists()
    assert failed.end(keep=True) == [] and (failed.directory / "log").exists()
    assert remove_stale(parent) == [] and not failed.directory.exists()


def test_processes_are_found_by_their_environment(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, env={"HOME": str(tmp_path)}) as process:
        wait_until(lambda: users_of(tmp_path) == [(process.pid, "/bin/cat ")], what="the program in its environment")
        assert clear(tmp_path) == [f"process {process.pid}: /bin/cat "]


def test_each_copied_cluster_has_its_own_identity_and_a_valid_control_file(fresh_cluster: FreshCluster) -> None:
    asked = "select system_identifier, pg_control_version > 0 from pg_control_system()"
    reported = [fresh_cluster().psql(asked) for _ in range(2)]
    assert len(set(reported)) == 2
    assert all(line.endswith("|t") for line in reported)


@pytest.mark.xdist_group("suite")
def test_the_workers_know_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    by_workers = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@suite") == by_workers


def test_a_test_that_must_run_alone_waits_for_active_ones_and_is_not_overtaken(tmp_path: Path) -> None:
    under_way, alone, late = HostLocks(tmp_path), HostLocks(tmp_path), HostLocks(tmp_path)
    under_way.acquire(alone=False)
    waits, comes = (threading.Thread(target=one.acquire, kwargs={"alone": one is alone}) for one in (alone, late))
    waits.start()
    wait_until(lambda: held(tmp_path / "gate"), what="the test that wants to be alone at the gate")
    comes.start()
    assert waits.is_alive() and comes.is_alive()
    under_way.release()
    waits.join(60)
    assert not waits.is_alive() and comes.is_alive()
    alone.release()
    comes.join(60)
    assert not comes.is_alive()


def held(path: Path) -> bool:
    """Whether someone has a lock on the file."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
