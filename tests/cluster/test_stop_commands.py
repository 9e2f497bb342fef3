"""Commands of the configuration that do not do what they are for: found before clients are held where that is possible,
and never left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dba_console.clusters import server_control as module
from dba_console.clusters.host_facts import check_stop
from dba_console.clusters.server_control import ServerControl
from dba_console.core.clock import SYSTEM
from dba_console.core.config import NodeConfig
from dba_console.core.errors import ConsoleError, PermissionDenied
from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.cluster.test_node_host import processes
from tests.requirements import require_tool
from tests.sshd import NAME, sshd

pytestmark = pytest.mark.xdist_group("sshd")  # where paths are long their shared connections lie in one directory


@pytest.mark.root
@pytest.mark.parametrize(
    ("config", "why"),
    [
        (NodeConfig(dsn="", stop=["/nowhere/stop-it", "now"]), "/nowhere/stop-it is missing on this host"),
        (NodeConfig(dsn="", control="systemd:nowhere@15-main"), "nowhere@15-main|systemctl is missing"),
        (NodeConfig(dsn="", bin_directory="/nowhere"), "/nowhere/pg_ctl is missing"),
    ],
)
def test_a_server_that_cannot_be_stopped_from_here_is_found_before_clients_are_held(
    config: NodeConfig, why: str, tmp_path: Path
) -> None:
    shutil.chown(tmp_path, "nobody")
    with pytest.raises(ConsoleError, match=why):
        check_stop(ServerControl("db1", config, str(tmp_path), None, SYSTEM))


@pytest.mark.root
def test_an_account_that_may_not_stop_the_server_is_found_before_clients_are_held(
    cluster: Cluster, tmp_path: Path
) -> None:
    require_tool("sudo")
    account, owner = "setpriv --reuid=daemon --regid=daemon --clear-groups", cluster.account.name
    config = NodeConfig(dsn="", ssh=NAME, data_directory=str(cluster.data_directory))
    for name, rights, allowed in (("some", "/bin/sh, /usr/bin/stat", False), ("all", "ALL", True)):
        directory = tmp_path / name
        directory.mkdir()
        with sshd(directory, through=account, sudoers=f"daemon ALL=({owner}) NOPASSWD: {rights}\n"):
            control = ServerControl("db1", config, str(cluster.data_directory), str(cluster.binaries.directory), SYSTEM)
            control._owner = owner  # also where the directories above may not be passed by others
            if allowed:
                check_stop(control)
            else:
                with pytest.raises(PermissionDenied, match=r"pg_ctl stop .* is not allowed"):
                    check_stop(control)


def test_a_stop_command_that_exceeds_its_timeout_is_killed_and_does_not_stop_the_server_later(
    cluster: Cluster, tmp_path: Path
) -> None:
    mark = f"stop-{tmp_path.name}"
    config = NodeConfig(dsn="", stop=["sh", "-c", "sleep 600; exit 1", mark])
    control = ServerControl("db1", config, str(cluster.data_directory), None, SYSTEM)
    assert control.stop(0.3).code is None
    wait_until(lambda: not processes(mark), what="the end of the command")
    assert control.running()


def test_a_start_command_that_succeeds_without_starting_anything_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSTMASTER_START_S", 0.1)
    control = ServerControl("db1", NodeConfig(dsn="", start=["true"]), str(tmp_path), None, SYSTEM)
    assert control.start(600).code is None
    assert not control.running()
