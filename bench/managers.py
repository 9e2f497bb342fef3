"""Real cluster managers: recognised while they act, paused and ended; Patroni switches over by the command we give.

By hand, beside repmgr (postgresql-15-repmgr), etcd (etcd-server) and Patroni (`pip install 'patroni[etcd3,psycopg3]'`,
its programs in a PATH that the servers' user may use). What is not installed is left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.figure import Figure
from dba_console.clock import SYSTEM
from dba_console.clusters.host import Host
from dba_console.clusters.managers import ManagedCommand, Manager, pause, recognise, switchover, unpause
from dba_console.clusters.survey import Survey, survey
from dba_console.config import ClusterConfig, NodeConfig
from dba_console.demo.account import clean_environment, server_account
from dba_console.demo.binaries import find_binaries
from dba_console.demo.cluster import Cluster, make_standby

LIMIT_S = 90.0


def run(smoke: bool = False) -> list[Figure]:
    if smoke:
        return []  # neither is installed where smoke runs
    figures = []
    if find_binaries().has("repmgrd"):
        figures.append(_repmgr())
    if all(shutil.which(one) for one in ("patroni", "patronictl", "etcd")):
        figures.append(_patroni())
    return figures


def _repmgr() -> Figure:
    """repmgrd that runs, is paused by our command, runs again, and has ended."""
    binaries = find_binaries()
    with ExitStack() as around:
        settings = {"wal_log_hints": "on", "shared_preload_libraries": "repmgr"}
        first = around.enter_context(Cluster(binaries, settings=settings, durable=False))
        second = make_standby(first)
        around.callback(second.close)
        second.start()
        first.psql("create database repmgr")
        nodes = {"db1": first, "db2": second}
        for number, (name, node) in enumerate(nodes.items(), 1):
            file = first.base / f"{name}.conf"
            file.write_text(
                f"node_id={number}\nnode_name='pg{number}'\nconninfo='{node.dsn(dbname='repmgr')} connect_timeout=5'\n"
                f"data_directory='{node.data_directory}'\npg_bindir='{binaries.directory}'\nfailover=automatic\n"
                "promote_command='false'\nfollow_command='false'\n"
                f"repmgrd_pid_file='{first.base}/{name}.pid'\nlog_file='{first.base}/{name}.log'\n"
            )
            first.account.own(file)
        first.run("repmgr", "-f", str(first.base / "db1.conf"), "primary", "register")
        _until(lambda: second.psql("select 1 from pg_database where datname = 'repmgr'"))
        first.run("repmgr", "-f", str(first.base / "db2.conf"), "standby", "register", "--force")
        for name in nodes:
            first.run("repmgrd", "-f", str(first.base / f"{name}.conf"), "-d")
        for name in nodes:
            around.callback(_end, first.base / f"{name}.pid")
        config = ClusterConfig(nodes={name: NodeConfig(dsn=node.dsn()) for name, node in nodes.items()})
        begun = time.monotonic()
        _until(lambda: _manager(config).acts)
        assert str(switchover(_manager(config), "db1", "db2")).endswith("standby switchover --siblings-follow")
        _execute(pause(_manager(config), "db2"), first.account.name)
        assert not _manager(config).acts
        _execute(unpause(_manager(config), "db2"), first.account.name)
        _until(lambda: _manager(config).acts)
        for name in nodes:
            _end(first.base / f"{name}.pid")
        _until(lambda: "does not run" in _manager(config).evidence)
        return Figure("repmgrd recognised, paused, woken and ended", time.monotonic() - begun, "s")


def _patroni() -> Figure:
    """Two nodes and etcd: over by the command that `switchover` gives, and back."""
    account = server_account()
    with ExitStack() as around:
        base = Path(tempfile.mkdtemp(prefix="bench-patroni-", dir="/tmp"))
        around.callback(lambda: shutil.rmtree(base, ignore_errors=True))
        client, peer, *ports = _free_ports(6)
        for number in (1, 2):
            sockets = base / f"s{number}"
            sockets.mkdir()
            file = base / f"pg{number}.yml"
            file.write_text(_configuration(base, number, client, ports[number - 1], ports[number + 1]))
            account.own(sockets)
            account.own(file)
        account.own(base)
        etcd = ["etcd", "--data-dir", f"{base}/etcd"]
        for name, port in (("client", client), ("peer", peer)):
            etcd += [f"--listen-{name}-urls", f"http://127.0.0.1:{port}"]
        etcd += ["--advertise-client-urls", f"http://127.0.0.1:{client}"]
        around.enter_context(_running(etcd, base / "etcd.log"))
        dsns = {
            f"db{n}": f"host=127.0.0.1 port={ports[n - 1]} user=postgres dbname=postgres password=s" for n in (1, 2)
        }
        config = ClusterConfig(nodes={name: NodeConfig(dsn=dsn) for name, dsn in dsns.items()})
        for number in (1, 2):
            around.enter_context(_running(["patroni", f"{base}/pg{number}.yml"], base / f"pg{number}.log"))
            _until(lambda: len(survey("shop", config, SYSTEM).primaries) == 1)
        took = []
        for _ in range(2):
            _until(lambda: _roles(config) == ["primary", "standby"])
            found = survey("shop", config, SYSTEM)
            old = found.primaries[0].name
            new = next(name for name in dsns if name != old)
            _until(lambda new=new: len(_manager(config, new).members) == 2)  # type: ignore[misc]
            begun = time.monotonic()
            _execute(switchover(_manager(config, new), old, new), account.name)
            took.append(time.monotonic() - begun)
            assert survey("shop", config, SYSTEM).primaries[0].name == new
        return Figure("Patroni: switchover by its own command, over and back", sum(took) / 2, "s")


def _configuration(base: Path, number: int, etcd: int, port: int, api: int) -> str:
    return f"""scope: shop
name: pg{number}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
etcd3: {{host: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs: {{ttl: 20, loop_wait: 2, retry_timeout: 5, postgresql: {{use_pg_rewind: true}}}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, data-checksums]
  pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {base}/n{number}
  bin_dir: {find_binaries().directory}
  pgpass: {base}/pgpass{number}
  authentication: {{replication: {{username: replicator, password: r}}, superuser: {{username: postgres, password: s}}}}
  parameters: {{unix_socket_directories: "{base}/s{number}", fsync: "off"}}
"""


def _manager(config: ClusterConfig, to: str = "db2") -> Manager:
    found: Survey = survey("shop", config, SYSTEM, to=to)
    [manager] = recognise(found)
    return manager


def _roles(config: ClusterConfig) -> list[str]:
    found = survey("shop", config, SYSTEM)
    return sorted(node.role or "" for node in found.nodes if node.role == "primary" or node.receiver)


def _execute(command: ManagedCommand | None, user: str) -> None:
    assert command is not None
    ended = Host(None, SYSTEM).run(command.argv, user=user, timeout_s=LIMIT_S)
    assert ended.code == 0, f"{command}: {ended.output}{ended.errors}"


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    """A program as the servers' user, ended with the block: Patroni stops its server then."""
    account = server_account()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
            env={**clean_environment(str(log.parent)), "PATH": os.environ["PATH"]}, **account.spawn,
        )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _end(file: Path) -> None:
    if file.exists():
        try:
            os.kill(int(file.read_text()), signal.SIGTERM)
        except ProcessLookupError:
            return


def _until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as around:
        sockets = [around.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
