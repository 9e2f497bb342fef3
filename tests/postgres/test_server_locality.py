"""Whether the server is on this host: proven or not shown."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.probes.postgres.connect import MonitorOptions
from dba_console.watch.probes.postgres.server_locality import ServerEvidence, SocketRoute, prove_local
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.postgres.probes import connected, connected_probe, reading
from tests.postgres.proxy import Proxy
from tests.sql import query

BOOT_S = 1_795_000_000
BACKEND, POSTMASTER = 4321, 1234
UNIX = SocketRoute(None, True)
LOOPBACK = SocketRoute("127.0.0.1", True)
REMOTE = SocketRoute("10.0.0.5", False)
TICKS = os.sysconf("SC_CLK_TCK")
EVIDENCE = ServerEvidence(BACKEND, (BOOT_S + 500) * 1_000_000, (BOOT_S + 100) * 1_000_000, "/data")

MakeProc = Callable[..., str]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeProc:
    """A /proc with a postmaster started 100 s and a backend 500 s after boot."""

    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    def make(*, backend_s: int = 500, postmaster_s: int = 100, spaces: str = "4321", cwd: str | None = None) -> str:
        (tmp_path / "stat").write_text(f"cpu 1 2 3\nbtime {BOOT_S}\n")
        for pid, parent, start, namespaces in (
            (BACKEND, POSTMASTER, backend_s, spaces),
            (POSTMASTER, 1, postmaster_s, str(POSTMASTER)),
        ):
            directory = tmp_path / str(pid)
            directory.mkdir()
            fields = " ".join(["S", str(parent), *["0"] * 17, str(start * TICKS), *["0"] * 30])
            (directory / "stat").write_text(f"{pid} (post) gres) {fields}\n")
            (directory / "status").write_text(f"Name:\tpostgres\nNSpid:\t{namespaces}\n")
        if cwd is not None:
            (tmp_path / str(POSTMASTER) / "cwd").symlink_to(cwd)
        return str(tmp_path)

    return make


def test_a_local_backend_with_its_postmaster_is_proof(host: MakeProc) -> None:
    found = prove_local(EVIDENCE, LOOPBACK, proc=host())
    assert (found.local, found.postmaster_pid) == (True, POSTMASTER)


def test_loopback_alone_proves_nothing(host: MakeProc) -> None:
    elsewhere = replace(EVIDENCE, backend_pid=77)
    found = prove_local(elsewhere, LOOPBACK, proc=host())
    assert found.local is None
    assert "no process 77 is visible here" in found.note


def test_a_process_with_that_pid_and_another_start_time_is_another_process(host: MakeProc) -> None:
    assert prove_local(EVIDENCE, UNIX, proc=host(backend_s=400)).local is None


def test_a_parent_with_another_start_time_is_not_the_postmaster(host: MakeProc) -> None:
    assert prove_local(EVIDENCE, UNIX, proc=host(postmaster_s=50)).local is None


def test_a_clock_set_since_the_start_is_compensated_by_the_data_directory(host: MakeProc) -> None:
    assert prove_local(EVIDENCE, UNIX, proc=host(postmaster_s=50, cwd="/data")).local is True


def test_a_process_in_a_container_is_not_on_this_host(host: MakeProc) -> None:
    assert prove_local(EVIDENCE, LOOPBACK, proc=host(spaces="4321\t17")).local is None


def test_another_host_is_another_host_even_with_the_same_pids(host: MakeProc) -> None:
    found = prove_local(EVIDENCE, REMOTE, proc=host())
    assert found.local is False
    assert "10.0.0.5" in found.note


def test_with_a_pooler_on_another_host_it_stays_undecided(host: MakeProc) -> None:
    assert prove_local(EVIDENCE, REMOTE, through="PgBouncer", proc=host()).local is None


def test_the_configuration_decides_if_it_is_explicit(host: MakeProc) -> None:
    proc = host()
    elsewhere = replace(EVIDENCE, backend_pid=77)
    assert prove_local(EVIDENCE, UNIX, configured=False, proc=proc).local is False
    assert prove_local(elsewhere, REMOTE, configured=True, proc=proc).local is True
    assert prove_local(elsewhere, REMOTE, configured=True, proc=proc).postmaster_pid is None


def test_a_cluster_on_this_host_is_proven_over_the_unix_socket(cluster: Cluster) -> None:
    with connected_probe(cluster) as probe:
        assert reading(probe, "pg.server").local is True
        assert probe.locality is not None
        assert probe.locality.postmaster_pid == cluster.pid


def test_a_cluster_on_this_host_is_proven_over_tcp(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"listen_addresses": "127.0.0.1"})
    query(cluster, "alter role postgres password 'pw'")
    conninfo = f"host=127.0.0.1 port={cluster.port} user=postgres dbname=postgres password=pw"
    with connected(conninfo) as probe:
        assert reading(probe, "pg.server").local is True


def test_a_tunnel_to_this_host_is_still_this_host(cluster: Cluster) -> None:
    with Proxy(cluster) as proxy, connected(proxy.dsn()) as probe:
        assert reading(probe, "pg.server").local is True


def test_a_host_configured_as_remote_is_not_shown(cluster: Cluster) -> None:
    with connected_probe(cluster, options=MonitorOptions(host_panels=False)) as probe:
        assert reading(probe, "pg.server").local is False


@pytest.mark.root
def test_a_server_in_its_own_pid_namespace_is_not_proven_even_with_a_local_socket(
    fresh_cluster: FreshCluster, require_tool: Callable[[str], str]
) -> None:
    cluster = fresh_cluster()
    cluster.stop()
    program, account = str(cluster.binaries.program("postgres")), cluster.account
    inside = [require_tool("setpriv"), f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups", program]
    apart = [require_tool("unshare"), "--pid", "--fork", "--kill-child", *inside, "-D", str(cluster.data_directory)]
    contained = subprocess.Popen(
        apart, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _answers(cluster), timeout=30)
        with connected_probe(cluster) as probe:
            server = reading(probe, "pg.server")
    finally:
        contained.kill()
        contained.wait()
    assert server.local is None
    assert "host_panels = true" in server.local_note


def _answers(cluster: Cluster) -> bool:
    try:
        return query(cluster, "select 1") == "1"
    except ConsoleError:
        return False


def proc_with_hidepid(proc: str, *, uid: int, peer_port: int = 40112) -> str:
    """That /proc, mounted with hidepid, its processes gone, and one connection from `peer_port` to a server."""
    for pid in (BACKEND, POSTMASTER):
        shutil.rmtree(Path(proc) / str(pid))
    (Path(proc) / "self").mkdir()
    (Path(proc) / "self" / "mountinfo").write_text(f"22 1 0:5 / {proc} rw - proc proc rw,hidepid=invisible\n")
    (Path(proc) / "net").mkdir()
    row = f"   0: 0100007F:1538 0100007F:{peer_port:04X} 01 00000000:00000000 02:00000000 00000000  {uid}  0 5501 2\n"
    (Path(proc) / "net" / "tcp").write_text("  sl  local_address rem_address   st ...\n" + row)
    (Path(proc) / "net" / "tcp6").write_text("  sl  local_address\n")
    return proc


OWN_END = SocketRoute("127.0.0.1", True, own_port=40112, peer_port=0x1538)


def test_with_hidden_processes_the_server_end_of_the_connection_is_proof(host: MakeProc, tmp_path: Path) -> None:
    proc = proc_with_hidepid(host(), uid=tmp_path.stat().st_uid)
    ours = replace(EVIDENCE, data_directory=str(tmp_path), client_port=40112)
    assert prove_local(ours, OWN_END, proc=proc).local is True
    between = prove_local(replace(ours, client_port=50000), OWN_END, proc=proc)
    assert (between.local, "hidepid=invisible" in between.note) == (None, True), "a tunnel has a port of its own"
    assert prove_local(replace(ours, data_directory=None), OWN_END, proc=proc).local is None
    assert prove_local(ours, UNIX, proc=proc).local is None


def test_a_socket_not_owned_by_the_owner_of_the_data_is_not_proof(host: MakeProc, tmp_path: Path) -> None:
    proc = proc_with_hidepid(host(), uid=tmp_path.stat().st_uid + 1)
    ours = replace(EVIDENCE, data_directory=str(tmp_path), client_port=40112)
    assert prove_local(ours, OWN_END, proc=proc).local is None
