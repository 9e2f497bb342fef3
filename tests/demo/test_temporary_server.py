"""A cluster of one's own starts, dies in every way a server can, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.demo.temporary_server import Cluster, make_standby
from tests.background import wait_until
from tests.clusters import FreshCluster


def test_a_cluster_answers_with_checksums_on(cluster: Cluster) -> None:
    assert cluster.psql("show data_checksums") == "on"


def test_a_cluster_is_reached_by_its_private_socket_only(cluster: Cluster) -> None:
    assert cluster.psql("show listen_addresses") == ""
    assert cluster.socket_directory.stat().st_mode & 0o077 == 0


def test_the_server_never_runs_as_root(cluster: Cluster) -> None:
    assert cluster.pid is not None
    assert Path(f"/proc/{cluster.pid}").stat().st_uid != 0


def test_every_supported_version_runs(server: Cluster) -> None:
    assert server.psql("select current_setting('server_version_num')::int / 10000") == str(server.major)


def test_settings_survive_a_restart(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"max_connections": 17})
    cluster.restart({"work_mem": "5MB"})
    assert cluster.psql("show max_connections; show work_mem").split() == ["17", "5MB"]


def test_a_killed_server_starts_again_at_once(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    first = cluster.pid
    cluster.kill()
    assert not cluster.running
    cluster.start()
    assert cluster.pid not in (None, first)
    assert cluster.psql("select 1") == "1"


def test_a_frozen_postmaster_can_still_be_stopped(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.sigstop()
    cluster.stop("fast", timeout_s=5)
    assert not cluster.running


def test_a_reload_applies_settings_without_a_restart(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    before = cluster.pid
    cluster.reload({"work_mem": "7MB"})
    wait_until(lambda: cluster.psql("show work_mem") == "7MB")
    assert cluster.pid == before


def test_a_standby_streams_from_its_primary(fresh_cluster: FreshCluster) -> None:
    primary = fresh_cluster()
    with make_standby(primary, slot="s1") as standby:
        assert standby.psql("select pg_is_in_recovery()") == "t"
        wait_until(lambda: primary.psql("select 1 from pg_stat_replication where state = 'streaming'"))


def test_a_server_that_cannot_start_says_why_with_its_log(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    with pytest.raises(ConnectError, match="max_connections"):
        cluster.restart({"max_connections": "many"})
    assert not cluster.running


def test_failing_sql_raises_with_the_message_of_the_server(cluster: Cluster) -> None:
    with pytest.raises(ConsoleError, match="division by zero"):
        cluster.psql("select 1/0")


def test_a_closed_cluster_leaves_no_file(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster()
    cluster.close()
    assert not cluster.base.exists()


def test_a_custom_base_directory_is_kept(tmp_path: Path, passable_directory: Callable[[Path], Path]) -> None:
    base = passable_directory(tmp_path / "kept")
    with Cluster(base=base, durable=False) as cluster:
        cluster.psql("create table t (a int)")
    with Cluster(base=base, durable=False) as again:
        assert again.psql("select count(*) from t") == "0"


@pytest.fixture
def passable_directory() -> Callable[[Path], Path]:
    """pytest keeps its directories to their owner; the server's user has to pass through them."""

    def open_up(path: Path) -> Path:
        for parent in path.parents:
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
        return path

    return open_up


def test_a_base_directory_too_deep_for_a_socket_gets_its_sockets_elsewhere(
    tmp_path: Path, passable_directory: Callable[[Path], Path]
) -> None:
    cluster = Cluster(base=passable_directory(tmp_path / ("deep" * 25)), durable=False)
    assert not cluster.socket_directory.is_relative_to(cluster.base)
    cluster.close()
    assert not cluster.socket_directory.exists()


def test_a_killed_creator_leaves_neither_server_nor_files() -> None:
    script = (
        "import sys; from dba_console.demo.temporary_server import Cluster; c = Cluster(durable=False); c.__enter__();"
        "print(c.pid, c.base, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        pid, base = maker.stdout.readline().split()
        assert os.path.exists(f"/proc/{pid}")
        maker.send_signal(signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}") and not os.path.exists(base), 90, what="the guard's work")
