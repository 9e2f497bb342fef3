"""The practice cluster: ready for a cutover at once, its incidents seen by `cluster check`, nothing left of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.core.errors import ConnectError
from dba_console.demo import command, practice_cluster
from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.registry import CLUSTER_INCIDENTS, find_cluster_incident
from dba_console.demo.practice_cluster import PracticeCluster
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console
from tests.processes import mentioned_by
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("practice-cluster")
LATE = ("long-transaction", "weaker-standby", "primary-killed")
"""The first takes a minute, which the tests in between pass; the others restart the primary, which would end it."""
DEMO = [sys.executable, "-m", "dba_console", "demo"]


@pytest.fixture(scope="module")
def ground() -> Iterator[PracticeCluster]:
    require_tool("pgbouncer")
    with PracticeCluster() as made:
        yield made


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with own_console() as made:
        yield made


@pytest.fixture(scope="module")
def forgotten_transaction(ground: PracticeCluster) -> ClusterIncident:
    """A transaction that becomes long."""
    incident = find_cluster_incident("long-transaction")
    incident.cause(ground)
    return incident


def check(console: Console, ground: PracticeCluster, to: str = "db2") -> CompletedCommand:
    return console.run("cluster", "check", "demo", "--to", to, DBA_CONSOLE_CONFIG=str(ground.config_file))


def test_it_is_ready_for_a_cutover_to_each_standby_at_once(ground: PracticeCluster, console: Console) -> None:
    assert check(console, ground).code == 0
    assert check(console, ground, to="db3").code == 0
    shown = console.run("cluster", "show", "demo", DBA_CONSOLE_CONFIG=str(ground.config_file))
    assert [line.split()[:2] for line in shown.out.splitlines()[1:4]] == [
        ["db1", "primary"], ["db2", "standby"], ["db3", "standby"],
    ]  # fmt: skip
    assert "pgbouncer" in shown.out and "transaction" in shown.out


def test_other_users_of_the_host_get_no_access(ground: PracticeCluster) -> None:
    assert {node.psql("show listen_addresses") for node in ground.nodes.values()} == {""}
    assert ground.pooler is not None and "listen_addr =\n" in ground.pooler.config.read_text()
    private = [*(node.socket_directory for node in ground.nodes.values()), ground.pooler.directory, ground.archive]
    assert [path for path in private if path.stat().st_mode & 0o077] == []


@contextmanager
def caused_incident(ground: PracticeCluster, incident: ClusterIncident) -> Iterator[None]:
    incident.cause(ground)
    try:
        yield
    finally:
        incident.end(ground)


@pytest.mark.parametrize("name", [name for name in CLUSTER_INCIDENTS if name not in LATE])
@pytest.mark.usefixtures("forgotten_transaction")
def test_an_incident_is_detected_by_the_check_and_undone(ground: PracticeCluster, console: Console, name: str) -> None:
    assert_detected_and_undone(ground, console, find_cluster_incident(name))


def assert_detected_and_undone(ground: PracticeCluster, console: Console, incident: ClusterIncident) -> None:
    with caused_incident(ground, incident):
        found = wait_until(lambda: command.failing_check(ground, incident), what=f"{incident.check} failing")
        done = check(console, ground)
        assert done.code == 7
        assert found.text.split()[0] in done.out
        assert "FAILED" in done.out
    wait_until(lambda: command.failing_check(ground, incident) is None, what=f"the end of {incident.name}")


@pytest.fixture
def own_directories(tmp_path: Path) -> dict[str, str]:
    """Variables by which agents, sessions and histories stay in the test's directory."""
    own = {"DBA_CONSOLE_RUNTIME": "run", "DBA_CONSOLE_SESSIONS": "sessions", "XDG_STATE_HOME": "state"}
    return {name: str(tmp_path / place) for name, place in own.items()} | {"DBA_CONSOLE_AGENT_INTERVAL": "250ms"}


def site_of(stderr: str) -> Path:
    line = next(line for line in stderr.splitlines() if "DBA_CONSOLE_CONFIG=" in line)
    return Path(line.partition("=")[2]).parent


@pytest.mark.usefixtures("forgotten_transaction")
def test_without_a_screen_the_cluster_check_and_the_ledger_are_shown_at_the_end(
    own_directories: dict[str, str],
) -> None:
    done = subprocess.run(
        [*DEMO, "--headless", "--incident", "replay-paused", "--for", "4s"], env={**os.environ, **own_directories},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "incident begun: replay-paused" in done.stderr
    assert "NOT READY for a cutover of demo to db2" in done.stdout and "replay is paused on db2" in done.stdout
    assert ", 0 lost, 0 duplicated" in done.stderr
    assert not site_of(done.stderr).exists()


@pytest.mark.usefixtures("forgotten_transaction")
def test_a_killed_demo_leaves_no_process_and_no_file(own_directories: dict[str, str]) -> None:
    with subprocess.Popen(
        [*DEMO, "--cluster", "--headless", "--for", "10m"],
        env={**os.environ, **own_directories},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stderr is not None
        site = next(site_of(line) for line in demo.stderr if "DBA_CONSOLE_CONFIG=" in line)
        next(line for line in demo.stderr if "recording for" in line)
        running = mentioned_by(site)
        assert sum("postgres -D" in line for line in running) == 3 and any("pgbouncer" in line for line in running)
        demo.kill()
    wait_until(lambda: mentioned_by(site) == [], 90, what=f"the end of everything that mentions {site}")
    wait_until(lambda: not site.exists(), what="the end of its files")


@pytest.mark.usefixtures("forgotten_transaction")
def test_without_pgbouncer_it_says_so_keeps_its_files_and_the_load_finds_the_primary(
    own_directories: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, place in own_directories.items():
        monkeypatch.setenv(name, place)
    monkeypatch.setattr(practice_cluster, "find_pgbouncer", lambda: None)
    assert command.run_cluster_demo(True, 1.0, True, None) == 0
    output = capfd.readouterr().err
    assert "PgBouncer is not installed: the load connects to the primary directly" in output
    assert ", 0 lost, 0 duplicated" in output
    site = site_of(output)
    assert f"kept afterwards: {site}" in output
    assert mentioned_by(site) == []
    assert (site / "db1" / "data" / "PG_VERSION").exists()
    shutil.rmtree(site)


def test_a_long_transaction_is_detected_after_a_minute(
    ground: PracticeCluster, console: Console, forgotten_transaction: ClusterIncident
) -> None:
    wait_until(lambda: command.failing_check(ground, forgotten_transaction), 120, what="the long transaction")
    assert "transaction open for more than a minute" in check(console, ground).out
    forgotten_transaction.end(ground)
    assert check(console, ground).code == 0


@pytest.mark.parametrize("name", LATE[1:])
def test_an_incident_that_restarts_the_primary_is_detected_and_undone(
    ground: PracticeCluster, console: Console, name: str
) -> None:
    assert_detected_and_undone(ground, console, find_cluster_incident(name))


def pg_ctl(ground: PracticeCluster, name: str, *arguments: str) -> None:
    node = ground.nodes[name]
    subprocess.run(
        [str(node.binaries.program("pg_ctl")), "-D", str(node.data_directory), "-s", *arguments], check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", timeout=60, **node.account.spawn,
    )  # fmt: skip


def test_the_load_is_still_running_and_one_that_ends_is_an_error_with_its_last_messages(
    ground: PracticeCluster,
) -> None:
    ground.check()
    found = ground.verdict()
    assert found.all_kept and found.acknowledged > 100, found.sentence()
    assert ground._load is not None
    ground._load.kill()
    ground._load.wait(30)
    with pytest.raises(ConnectError, match=r"(?s)the load ended: .*client \d+, after number"):
        ground.check()
    ground.stop_load()


def test_a_cluster_is_removed_on_exit_whichever_program_started_its_servers() -> None:
    with PracticeCluster(pooled=False) as ground:
        site = ground.directory
        pg_ctl(ground, "db3", "restart", "-m", "fast", "-l", str(ground.nodes["db3"].log_path))
        assert ground.nodes["db3"].pid is not None
        os.kill(ground.nodes["db2"].pid or 0, signal.SIGSTOP)
    assert mentioned_by(site) == []
    assert not site.exists()
