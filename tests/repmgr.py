"""repmgr and its daemon on the practice cluster, registered as its documentation says, with an sshd of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dba_console.demo import practice_cluster
from dba_console.demo.binaries import find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.practice_cluster import PracticeCluster
from dba_console.demo.server_account import clean_environment
from tests.background import wait_until
from tests.requirements import require_tool


@contextmanager
def repmgr_cluster() -> Iterator[PracticeCluster]:
    """The practice cluster while repmgrd runs on every node of it. Skipped where PostgreSQL has no repmgr."""
    if not find_binaries().has("repmgrd"):
        pytest.skip("the PostgreSQL that is used here has no repmgr (Debian: postgresql-NN-repmgr)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(practice_cluster.SETTINGS, "shared_preload_libraries", "repmgr")
        with PracticeCluster() as ground, _registered(ground):
            yield ground


@contextmanager
def _registered(ground: PracticeCluster) -> Iterator[None]:
    place = ground.directory / "repmgr"
    place.mkdir(mode=0o700)
    ground.first_node.account.chown(place)
    server = _sshd(ground, place)
    try:
        ground.first_node.psql("create database repmgr")
        for number, name in enumerate(ground.nodes, 1):
            (place / f"{name}.conf").write_text(_conf(ground, place, number, name, server.port))
        _run(ground, place, "repmgr", "db1", "primary", "register")
        for name in ("db2", "db3"):
            node = ground.nodes[name]
            wait_until(lambda node=node: node.psql("select 1 from pg_database where datname = 'repmgr'"))  # type: ignore[misc]
            _run(ground, place, "repmgr", name, "standby", "register", "--upstream-node-id=1", "--force")
        for name in ground.nodes:
            _run(ground, place, "repmgrd", name, "-d")
        yield
    finally:
        for file in place.glob("*.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        end_child(server.process)


class _Sshd:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port


def _sshd(ground: PracticeCluster, directory: Path) -> _Sshd:
    """As the servers' user, whom repmgr connects as."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    for name in ("host_key", "key"):
        generate = [require_tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(generate, check=True)
    shutil.copy(directory / "key.pub", directory / "authorized_keys")
    (directory / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host_key\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nAuthorizedKeysFile {directory}/authorized_keys\nPasswordAuthentication no\n"
    )
    for file in directory.iterdir():
        ground.first_node.account.chown(file)
    command = [require_tool("sshd"), "-D", "-e", "-f", str(directory / "sshd_config")]
    with (directory / "sshd.log").open("wb") as log:
        process = start_child(
            command, output=log, environment=clean_environment(str(directory)), spawn=ground.first_node.account.spawn
        )
    return _Sshd(process, port)


def _conf(ground: PracticeCluster, directory: Path, number: int, name: str, port: int) -> str:
    node = ground.nodes[name]
    # Of its nodes only directories of sockets are known: HostName takes their place.
    options = (
        f"-q -p {port} -i {directory}/key -o HostName=127.0.0.1 -o BatchMode=yes -o StrictHostKeyChecking=no "
        f"-o UserKnownHostsFile={directory}/known_hosts"
    )
    return (
        f"node_id={number}\nnode_name='{name}'\nconninfo='{node.dsn(dbname='repmgr')} connect_timeout=5'\n"
        f"data_directory='{node.data_directory}'\npg_bindir='{node.binaries.directory}'\n"
        f"repmgr_bindir='{node.binaries.directory}'\nssh_options='{options}'\nuse_replication_slots=true\n"
        f"pg_ctl_options='-l {node.log_path}'\nfailover=automatic\npromote_command='false'\nfollow_command='false'\n"
        f"repmgrd_pid_file='{directory}/{name}.pid'\nlog_file='{directory}/{name}.log'\n"
    )


def _run(ground: PracticeCluster, directory: Path, program: str, node: str, *arguments: str) -> None:
    command = [str(ground.first_node.binaries.program(program)), "-f", str(directory / f"{node}.conf"), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd="/",
        env=clean_environment(str(directory)), **ground.first_node.account.spawn,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
