"""A cluster that Patroni runs: two members, etcd, a PgBouncer before them, and a load that keeps a ledger.

Patroni is fetched once from PyPI into .cache/patroni, for a Python that the servers' user can run; etcd is Debian's
etcd-server. Everything listens on the loopback, and is gone when the block is left.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psycopg

from dba_console.core.config import ClusterConfig, NodeConfig, PoolerConfig
from dba_console.demo.binaries import find_binaries, make_readable
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.ledger import LedgerVerdict, ledger_verdict, start_ledger
from dba_console.demo.pooler import Pooler, find_pgbouncer
from dba_console.demo.server_account import clean_environment, server_account
from tests.background import wait_until
from tests.requirements import lacking, require_tool
from tests.servers import fetch_lock

PINNED = "patroni[etcd3,psycopg3]==4.1.0"
STORE = Path(__file__).resolve().parent.parent / ".cache" / "patroni"
NAME = "shop"
NODES = ("db1", "db2")
"""Patroni calls them pg1 and pg2. The first begins as the leader."""
ROLE = "shop_web"


def patroni_programs() -> Path:
    """The directory of `patroni` and `patronictl`; ends the test where they cannot be had."""
    require_tool("etcd")
    home = STORE / PINNED.rpartition("=")[2]
    with fetch_lock(STORE):
        if not (home / "bin" / "patronictl").exists():
            _fetch(home)
    if not _runs([str(home / "bin" / "patroni"), "--version"]):
        lacking(f"Patroni in {home} does not run as {server_account().name}")
    return home / "bin"


def _fetch(home: Path) -> None:
    python = next((one for one in (sys.executable, "/usr/bin/python3") if _runs([one, "-c", "import venv"])), None)
    if python is None:
        lacking(f"there is no Python that {server_account().name} can run, for Patroni")
    shutil.rmtree(home, ignore_errors=True)
    try:
        subprocess.run([python, "-m", "venv", "--without-pip", str(home)], check=True, capture_output=True)
        pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "-q", PINNED]
        subprocess.run(pip, check=True, capture_output=True, timeout=300)
    except subprocess.SubprocessError as error:
        shutil.rmtree(home, ignore_errors=True)
        lacking(f"pip could not fetch {PINNED}: {error}")
    make_readable(home)


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, cwd="/", **server_account().spawn).returncode == 0
    except OSError:
        return False


_ROLE = """
SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT status FROM pg_stat_wal_receiver) ELSE 'primary' END
"""


class _Place(NamedTuple):
    socket_directory: str
    port: int


class PatroniCluster:
    """`with PatroniCluster() as ground:` runs it."""

    def __init__(self) -> None:
        self._programs = patroni_programs()
        self.account = server_account()
        self._site = Path(tempfile.mkdtemp(prefix="patroni-", dir="/tmp"))
        self._site.chmod(0o711)  # the configuration lies here, where only its owner may write
        self.base = self._site / "servers"
        self._stack = ExitStack()
        client, peer, *ports = _free_ports(6)
        self._etcd, self._peer, self._ports, self._apis = client, peer, ports[:2], ports[2:]
        self.patroni: dict[str, subprocess.Popen[bytes]] = {}
        program = find_pgbouncer() or lacking("there is no pgbouncer on this machine")
        self.pooler = Pooler(program, self._site / "pooler", self.account, ("postgres", ROLE))
        self.config_file = self._site / "config.toml"
        self.ledger = self._site / "ledger"

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        shutil.rmtree(self._site, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """What commands need to find the cluster."""
        return {"DBA_CONSOLE_CONFIG": str(self.config_file)}

    @property
    def config(self) -> ClusterConfig:
        nodes = {name: NodeConfig(dsn=self.dsn(name)) for name in NODES}
        pooler = PoolerConfig(dsn=self.pooler.dsn(), databases=[NAME], config=str(self.pooler.config))
        return ClusterConfig(nodes=nodes, poolers={"pgbouncer": pooler}, clients=self.clients)

    @property
    def clients(self) -> str:
        """How the application connects."""
        return self.pooler.dsn(user=ROLE, dbname=NAME)

    def dsn(self, node: str, dbname: str = NAME) -> str:
        return f"host=127.0.0.1 port={self._ports[NODES.index(node)]} user=postgres dbname={dbname}"

    def patronictl(self, node: str) -> list[str]:
        """The command, with the configuration of a member."""
        return [str(self._programs / "patronictl"), "-c", str(self._file(node))]

    def ask(self, node: str, sql: str, dbname: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn(node, dbname), autocommit=True) as connection:
            found = connection.execute(sql.encode())
            return [] if found.description is None else found.fetchall()

    def primary(self) -> list[str]:
        return [name for name in NODES if self.ask(name, "select not pg_is_in_recovery()") == [(True,)]]

    def complete(self) -> bool:
        """One primary, and the other streams from it."""
        try:
            found = [self.ask(name, _ROLE)[0][0] for name in NODES]
        except psycopg.OperationalError:
            return False
        return sorted(map(str, found)) == ["primary", "streaming"]

    def verdict(self) -> LedgerVerdict:
        ports = ",".join(map(str, self._ports))
        hosts = "host=127.0.0.1,127.0.0.1"
        return ledger_verdict(
            self.ledger, f"{hosts} port={ports} user=postgres dbname={NAME} target_session_attrs=read-write"
        )

    # -- inside --------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self.base.mkdir()
        self.account.chown(self.base)
        etcd = ["etcd", "--data-dir", f"{self.base}/etcd", "--unsafe-no-fsync"]
        for name, port in (("client", self._etcd), ("peer", self._peer)):
            etcd += [f"--listen-{name}-urls", f"http://127.0.0.1:{port}"]
        etcd += ["--advertise-client-urls", f"http://127.0.0.1:{self._etcd}"]
        self._start(etcd, "etcd")
        for node in NODES:
            self._file(node).write_text(self._configuration(node))
            self.account.chown(self._file(node))
        for node in NODES:
            self.patroni[node] = self._start([str(self._programs / "patroni"), str(self._file(node))], node)
            if node == NODES[0]:
                wait_until(self._answers, 60, what="the first member as the leader")
                self.ask(node, f"create role {ROLE} login")
                self.ask(node, f"create database {NAME} owner {ROLE}")
        self.pooler.start(NAME, _Place("127.0.0.1", self._ports[0]))
        self._stack.callback(self.pooler.stop)
        load = start_ledger(self.ledger, self.clients)
        self._stack.callback(lambda: end_child(load))
        self._write_config()
        wait_until(self.complete, 60, what="the second member streaming")
        wait_until(lambda: self.verdict().acknowledged, what="a commit of the load")

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        """As the servers' user; Patroni stops its server when it is ended."""
        with (self.base / f"{name}.log").open("wb") as log:
            environment = {**clean_environment(str(self.base)), "PATH": os.environ["PATH"]}
            process = start_child(command, output=log, environment=environment, spawn=self.account.spawn)
        self._stack.callback(lambda: end_child(process, patience_s=30))
        return process

    def _file(self, node: str) -> Path:
        return self.base / f"{node}.yml"

    def _answers(self) -> bool:
        try:
            return self.primary_is(NODES[0])
        except psycopg.OperationalError:
            return False

    def primary_is(self, node: str) -> bool:
        return self.ask(node, "select not pg_is_in_recovery()") == [(True,)]

    def _configuration(self, node: str) -> str:
        number = NODES.index(node) + 1
        port, api = self._ports[number - 1], self._apis[number - 1]
        return f"""scope: {NAME}
name: pg{number}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
etcd3: {{host: "127.0.0.1:{self._etcd}"}}
bootstrap:
  dcs: {{ttl: 20, loop_wait: 1, retry_timeout: 3, postgresql: {{use_pg_rewind: true}}}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, data-checksums]
postgresql:
  listen: "127.0.0.1:{port}"
  connect_address: "127.0.0.1:{port}"
  data_dir: {self.base}/{node}
  bin_dir: {find_binaries().directory}
  basebackup: {{checkpoint: fast}}
  pgpass: {self.base}/pgpass{number}
  authentication: {{replication: {{username: replicator, password: r}}, superuser: {{username: postgres, password: s}}}}
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
  parameters: {{unix_socket_directories: "", fsync: "off"}}
"""

    def _write_config(self) -> None:
        lines = [f"[clusters.{NAME}]", f'clients = "{self.clients}"']
        for name in NODES:
            lines += [f"[clusters.{NAME}.nodes.{name}]", f'dsn = "{self.dsn(name)}"']
        lines += [f"[clusters.{NAME}.poolers.pgbouncer]", f'dsn = "{self.pooler.dsn()}"']
        lines += [f'databases = ["{NAME}"]', f'config = "{self.pooler.config}"']
        self.config_file.touch(mode=0o600)
        self.config_file.write_text("\n".join(lines) + "\n")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as around:
        sockets = [around.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
