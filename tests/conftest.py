"""Fixtures every test may ask for: real clusters by version, and what the machine must have.

`cluster` is shared by the whole run: leave it as you found it. What stops, breaks or configures a server takes one of
its own from `fresh_cluster`. A test that takes `server` runs once per major version, or on those its mark names:
`@pytest.mark.pg(14, 18)`.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from dba_console.demo.temporary_server import Cluster, Settings
from tests import scheduling
from tests.clusters import ClusterPool, FreshCluster, binaries_of
from tests.host_locks import host_locks
from tests.leftovers import Run, disk_parent_directory, parent_directory, remove_stale
from tests.requirements import require_root
from tests.requirements import require_tool as tool_path
from tests.servers import MAJORS
from tests.slowest import Durations
from tests.templates import copy_templates

# No time is judged: the machine may have other things to do.
UNTIMED = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("suite", UNTIMED, max_examples=25, derandomize=True, database=None)
hypothesis.settings.register_profile("long", UNTIMED, max_examples=300, print_blob=True)
hypothesis.settings.load_profile("suite")
# Hypothesis also draws constants from the modules loaded so far, which differ with the tests that a worker got: the
# examples of the suite would not be the same in each run.
providers._get_local_constants = lambda: providers._local_constants

UNDISTURBED: Settings = {"autovacuum_naptime": "1d"}
"""No autovacuum appears in what a test asks of a shared server: on, but it never gets that far."""
RUNS = pytest.StashKey[list[Run]]()
DISK = "DBA_CONSOLE_TESTS_DISK"
"""The run's directory on a disk; what is temporary otherwise lies in memory."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _restore_default_signals()
    copy_templates()
    worker = hasattr(config, "workerinput")
    for found in [] if worker else remove_stale():
        print(f"left behind by a run before: {found}")
    config.pluginmanager.register(host_locks())
    config.pluginmanager.register(scheduling)
    if worker:
        return  # the directory and the durations are the matter of the process that started it
    run, disk = config.stash[RUNS] = [Run(parent_directory()), Run(disk_parent_directory())]
    for name in ("COLUMNS", "LINES"):  # a program in a terminal of a test would take them for its size
        os.environ.pop(name, None)
    os.environ |= {"TMPDIR": str(run.directory), DISK: str(disk.directory)}
    tempfile.tempdir = None  # ask again
    config.option.basetemp = config.option.basetemp or str(run.directory / "t")
    config.pluginmanager.register(Durations())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the directory of a run that failed, until the next run; say what tests have left behind."""
    if hasattr(session.config, "workerinput"):
        return
    for run in session.config.stash.get(RUNS, []):
        for found in run.end(keep=exitstatus != 0):
            print(f"\nleft behind: {found}")


def _restore_default_signals() -> None:
    """A run begun in a script's background, or by nohup, ignores these signals; every program it starts would too."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("pg")
        majors = mark.args if mark and mark.args else MAJORS
        metafunc.parametrize("server", majors, indirect=True, ids=[f"pg{major}" for major in majors])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root"):
        require_root()


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[int | None], Cluster]]:
    """A running cluster per major version, started when first asked for, shared until the run ends."""
    with ExitStack() as stack:
        running: dict[int | None, Cluster] = {}

        def of(major: int | None) -> Cluster:
            if major not in running:
                running[major] = stack.enter_context(Cluster(binaries_of(major), settings=UNDISTURBED, durable=False))
            return running[major]

        yield of


@pytest.fixture(scope="session")
def cluster(cluster_of: Callable[[int | None], Cluster]) -> Cluster:
    """The shared cluster of the preferred installation."""
    return cluster_of(None)


@pytest.fixture
def server(request: pytest.FixtureRequest, cluster_of: Callable[[int | None], Cluster]) -> Cluster:
    """The shared cluster of each major version in turn."""
    return cluster_of(request.param)


@pytest.fixture
def fresh_cluster() -> Iterator[FreshCluster]:
    """Clusters of the test's own, stopped and removed at its end whatever became of them."""
    with ExitStack() as stack:

        def make(settings: Settings | None = None, *, major: int | None = None) -> Cluster:
            return stack.enter_context(Cluster(binaries_of(major), settings=settings, durable=False))

        yield make


@pytest.fixture(scope="session")
def pool() -> Iterator[ClusterPool]:
    """The clusters behind `reused_cluster`."""
    made = ClusterPool()
    yield made
    made.close()


@pytest.fixture
def reused_cluster(pool: ClusterPool) -> Iterator[FreshCluster]:
    """As `fresh_cluster`, but of clusters that earlier tests used: reset, restarted where settings differ.

    Not for what lasts in the data directory: archiving, checksums, the age of transaction ids.
    """
    yield pool.get
    pool.release()


@pytest.fixture(scope="session")
def disk_directory() -> Iterator[Path]:
    """A directory on a disk: `tmp_path` and clusters may lie in memory."""
    with tempfile.TemporaryDirectory(dir=os.environ[DISK]) as made:
        yield Path(made)


@pytest.fixture
def require_tool() -> Callable[[str], str]:
    """Gives the path of a program, or ends the test with the reason."""
    return tool_path
