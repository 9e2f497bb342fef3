"""The practice cluster: primary db1, standbys db2 and db3, a WAL archive, a pooler, and a load with a commit ledger.

Its servers are not child processes, so that a cutover can stop, start and promote each of them. At the end everything
is stopped and removed, whatever roles the nodes have by then; after a `kill -9` of this process the cleanup process
does it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.core.config import ClusterConfig, NodeConfig, PoolerConfig
from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.paths import SOCKET_PATH_LIMIT
from dba_console.demo.binaries import NEEDED, Binaries, find_binaries
from dba_console.demo.child_processes import end_child
from dba_console.demo.cleanup_process import CleanupProcess
from dba_console.demo.clients import Clients
from dba_console.demo.ledger import LedgerVerdict, ledger_verdict, start_ledger
from dba_console.demo.pooler import Pooler, find_pgbouncer
from dba_console.demo.server_account import clean_environment, server_account
from dba_console.demo.temporary_server import (
    PID_FILE,
    SUPERUSER,
    Cluster,
    PgCtlServer,
    Settings,
    StartedInBlock,
    conninfo,
    scratch_directory,
)

if TYPE_CHECKING:
    from dba_console.demo.incidents.cluster_incident import ClusterIncident

# A node of the practice cluster: a server that other processes may stop, start and promote.


class Node(Cluster):
    """One data directory below `base`; its server is started by `pg_ctl`, is not a child process, and runs if its pid
    file says so. Its slot and application name are `name`. The caller is responsible for the cleanup process."""

    def __init__(self, name: str, base: Path, binaries: Binaries, settings: Settings) -> None:
        super().__init__(binaries, base=base, settings={**settings, "cluster_name": name}, guarded=False)
        self.name = name
        self._daemon = PgCtlServer(binaries.program("pg_ctl"), self.data_directory, self.log_path, self.account)

    @property
    def running(self) -> bool:
        return self._daemon.running

    @property
    def pid(self) -> int | None:
        return self._daemon.pid

    def stop(self, mode: str = "fast", *, timeout_s: float = 30.0) -> None:
        self._daemon.stop(mode, timeout_s)

    def kill(self) -> None:
        self._daemon.kill()

    def copy_from(self, other: Node) -> None:
        """Copy the data directory of a stopped server, with owners. Raises ConsoleError if that fails."""
        done = subprocess.run(
            ["cp", "-a", "--reflink=auto", str(other.data_directory), str(self.data_directory)],
            stdin=subprocess.DEVNULL, capture_output=True, env=clean_environment(), check=False,
        )  # fmt: skip
        if done.returncode != 0:
            why = done.stderr.decode(errors="replace").strip()
            raise ConsoleError(f"the files of {self.name} could not be copied: {why}")

    def follow(self, primary: Node) -> None:
        """Make the stopped server a standby that streams from `primary` through the slot of its own name.

        The settings are in the file `pg_basebackup -R` writes them to, so that a cutover finds and changes them there.
        """
        source = conninfo({"host": str(primary.socket_directory), "port": primary.port, "user": "postgres"})
        source = source.replace("'", "''")
        with (self.data_directory / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\nprimary_slot_name = '{self.name}'\n")
        signal_file = self.data_directory / "standby.signal"
        signal_file.touch()
        self.account.chown(signal_file)

    def is_primary(self) -> bool:
        """Return True if it answers and is not in recovery."""
        try:
            return self.running and self.psql("select pg_is_in_recovery()", timeout_s=10.0) == "f"
        except (ConsoleError, subprocess.TimeoutExpired):
            return False

    def _spawn(self) -> PgCtlServer:
        self._daemon.start()
        return self._daemon

    def _running_server(self) -> PgCtlServer:
        return self._daemon


NAME = "demo"
"""Name in the configuration, [clusters.demo]."""
NODES = ("db1", "db2", "db3")
"""The first one starts as the primary."""
DATABASE = "shop"
APPLICATION_ROLE = "shop_web"
"""Owns the database and is not a superuser, so a connection limit applies to it."""
CLIENTS = 10
RATE_PER_S = 100.0
FIRST_COMMIT_S = 20.0
"""Time limit for the first commit."""

SETTINGS: dict[str, str | int] = {
    "max_connections": 120,
    "shared_buffers": "48MB",
    "track_io_timing": "on",
    "wal_level": "replica",
    "wal_log_hints": "on",
    "max_wal_senders": 10,
    "max_replication_slots": 10,
    "max_prepared_transactions": 10,
    "wal_keep_size": "256MB",
    "hot_standby_feedback": "on",
    "wal_retrieve_retry_interval": "500ms",
    "archive_mode": "on",
    "archive_timeout": "5min",
    "checkpoint_timeout": "2min",
    "log_checkpoints": "on",
}


class PracticeCluster(StartedInBlock):
    """`with PracticeCluster() as ground:` runs it. `say` gets a progress message for each step. With `keep`, its
    directory remains. Without `pooled`, or without PgBouncer, clients connect to the primary directly."""

    def __init__(
        self,
        *,
        keep: bool = False,
        say: Callable[[str], None] = lambda _: None,
        incident: ClusterIncident | None = None,
        pooled: bool = True,
    ) -> None:
        self.say, self.keep, self.incident = say, keep, incident
        binaries = find_binaries([*NEEDED, "pg_ctl", "pg_rewind"])
        account = server_account()
        self.directory = _make_directory()
        self.archive = self.directory / "archive"
        self.ledger = self.directory / "ledger"
        self.config_file = self.directory / "config.toml"
        command = (
            f"cmp -s %p '{self.archive}/%f' || "
            f"{{ test ! -e '{self.archive}/%f' && cp %p '{self.archive}/%f.part' && "
            f"mv '{self.archive}/%f.part' '{self.archive}/%f'; }}"
        )
        settings = {**SETTINGS, "archive_command": command}
        self.nodes = {name: Node(name, self.directory / name, binaries, settings) for name in NODES}
        program = find_pgbouncer() if pooled else None
        users = (SUPERUSER, APPLICATION_ROLE)
        self.pooler = None if program is None else Pooler(program, self.directory / "pooler", account, users)
        self.clients = Clients(self.first_node, "incident.log")
        self.standby_clients = Clients(self.nodes["db2"], "incident.log")
        self._load: subprocess.Popen[bytes] | None = None
        pid_files = [node.data_directory / PID_FILE for node in self.nodes.values()]
        pid_files += [] if self.pooler is None else [self.pooler.pid_file]
        self._guard = CleanupProcess(pid_files, [] if keep else [self.directory])

    @property
    def first_node(self) -> Node:
        """The node that starts as the primary, and that the console opens on."""
        return self.nodes[NODES[0]]

    @property
    def dsn(self) -> str:
        return self.first_node.dsn(dbname=DATABASE)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that commands need to find the cluster."""
        return {"DBA_CONSOLE_CONFIG": str(self.config_file)}

    @property
    def application_dsn(self) -> str:
        """The application's connection: through the pooler, else to the node that accepts writes."""
        if self.pooler is not None:
            return self.pooler.dsn(user=APPLICATION_ROLE, dbname=DATABASE)
        return self._primary_dsn(APPLICATION_ROLE)

    @property
    def config(self) -> ClusterConfig:
        """The cluster as in the configuration file."""
        binaries = self.first_node.binaries
        nodes = {
            name: NodeConfig(
                dsn=node.dsn(dbname=DATABASE), control="pg_ctl", data_directory=str(node.data_directory),
                bin_directory=str(binaries.directory),
            )
            for name, node in self.nodes.items()
        }  # fmt: skip
        poolers = {}
        if self.pooler is not None:
            poolers["pgbouncer"] = PoolerConfig(
                dsn=self.pooler.dsn(), databases=[DATABASE], config=str(self.pooler.config)
            )
        return ClusterConfig(nodes=nodes, poolers=poolers, clients=self.application_dsn)

    def close(self) -> None:
        """End the load, the pooler and every server; remove the directory unless it is kept. May be called twice."""
        incident, self.incident = self.incident, None
        with ExitStack() as steps:  # all of these run, also if others fail; the last one first
            steps.callback(self._guard.release)
            steps.callback(self._remove)
            steps.callback(self._stop_servers)
            if self.pooler is not None:
                steps.callback(self.pooler.stop)
            steps.callback(self.stop_load)
            steps.callback(self.clients.stop)
            steps.callback(self.standby_clients.stop)
            if incident is not None and self.keep:
                incident.end(self)

    def primary(self) -> Node | None:
        """Return the node that accepts writes now; None if none does."""
        return next((node for node in self.nodes.values() if node.is_primary()), None)

    def check(self) -> None:
        """Raises ConnectError if the load ended, with its last messages."""
        if self._load is not None and self._load.poll() is not None:
            text = (self.ledger / "errors.log").read_text(errors="replace").strip()
            raise ConnectError(f"the load ended: {text[-500:] or 'no message'}")

    def stop_load(self) -> None:
        if self._load is not None:
            end_child(self._load)
            self._load = None

    def verdict(self) -> LedgerVerdict:
        """Compare the load's acknowledged commits with those on the primary. Raises ConnectError without a primary."""
        return ledger_verdict(self.ledger, self._primary_dsn(SUPERUSER))

    def start_command(self) -> str:
        """Return a command that starts the first server of a cluster that was kept."""
        pg_ctl = f"{self.first_node.binaries.program('pg_ctl')} -D {self.first_node.data_directory} start"
        account = self.first_node.account
        return f"runuser -u {account.name} -- {pg_ctl}" if account.switched else pg_ctl

    # -- inside --------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        db1, *standbys = self.nodes.values()
        self.say(f"PostgreSQL {db1.binaries.version} from {db1.binaries.directory}, run by {db1.account.name}")
        self.archive.mkdir(mode=0o700)
        db1.account.chown(self.archive)
        db1.initdb()
        with ThreadPoolExecutor() as copying:
            list(copying.map(lambda standby: standby.copy_from(db1), standbys))
        for standby in standbys:
            standby.follow(db1)
        db1.start()
        with ThreadPoolExecutor() as starting:
            starts = [starting.submit(standby.start) for standby in standbys]
            for standby in standbys:
                db1.psql(f"select pg_create_physical_replication_slot('{standby.name}', true)")
            db1.psql(f"create role {APPLICATION_ROLE} login")
            db1.psql(f"create database {DATABASE} owner {APPLICATION_ROLE}")
            if self.pooler is not None:
                self.pooler.start(DATABASE, db1)
            self._load = start_ledger(self.ledger, self.application_dsn, clients=CLIENTS, rate_per_s=RATE_PER_S)
            self._write_config()
            for start in starts:
                start.result()
        self._wait_committed()
        route = f"through {self.pooler.directory.name}" if self.pooler is not None else "directly"
        self.say(f"primary db1, standbys db2 and db3; load: {CLIENTS} clients, {RATE_PER_S:g} commits/s, {route}")

    def _write_config(self) -> None:
        """Write the configuration into a directory that only root and its owner may write: others are refused."""
        cluster = self.config
        lines = [f"[clusters.{NAME}]", f"clients = {_toml(cluster.clients or '')}"]
        for name, node in cluster.nodes.items():
            lines += ["", f"[clusters.{NAME}.nodes.{name}]", f"dsn = {_toml(node.dsn)}", 'control = "pg_ctl"']
            lines += [f"data_directory = {_toml(node.data_directory or '')}"]
            lines += [f"bin_directory = {_toml(node.bin_directory or '')}"]
        for name, pooler in cluster.poolers.items():
            lines += ["", f"[clusters.{NAME}.poolers.{name}]", f"dsn = {_toml(pooler.dsn)}"]
            lines += [f"databases = [{', '.join(map(_toml, pooler.databases))}]"]
            lines += [f"config = {_toml(pooler.config or '')}"]
        self.config_file.touch(mode=0o600)
        self.config_file.write_text("\n".join(lines) + "\n")

    def _wait_committed(self) -> None:
        """Return when the application has its first commit, and both standbys stream."""
        until = time.monotonic() + FIRST_COMMIT_S
        streaming = "select count(*) = 2 from pg_stat_replication where state = 'streaming'"
        while not self._acknowledged() or self.first_node.psql(streaming) != "t":
            self.check()
            if time.monotonic() > until:
                raise ConnectError("the cluster was not complete in time", hint=f"see the logs below {self.directory}")
            time.sleep(0.05)

    def _acknowledged(self) -> bool:
        return any("acked" in path.read_text() for path in self.ledger.glob("client-*.ledger"))

    def _primary_dsn(self, user: str) -> str:
        """Return a connection string that finds the primary among the nodes."""
        nodes = self.nodes.values()
        return conninfo(
            {"host": ",".join(str(node.socket_directory) for node in nodes),
             "port": ",".join(str(node.port) for node in nodes),
             "user": user, "dbname": DATABASE, "target_session_attrs": "read-write"}
        )  # fmt: skip

    def _stop_servers(self) -> None:
        # If kept, they are shut down cleanly; the primary first, since it sends the last of its WAL to the others.
        mode = "fast" if self.keep else "immediate"
        if self.keep and (primary := self.primary()) is not None:
            primary.stop(mode)
        with ThreadPoolExecutor() as stopping:
            list(stopping.map(lambda node: node.stop(mode), self.nodes.values()))

    def _remove(self) -> None:
        if not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def _make_directory() -> Path:
    """Create a directory that every user may pass and only its owner may read, with a path short enough for sockets."""
    parent = scratch_directory()
    longest = len(os.fsencode(f"{parent}/dba-console-12345678/db1/socket/.s.PGSQL.65535.lock"))
    directory = Path(tempfile.mkdtemp(prefix="dba-console-", dir=parent if longest <= SOCKET_PATH_LIMIT else "/tmp"))
    if server_account().switched:
        directory.chmod(0o711)
    return directory.resolve()


def _toml(text: str) -> str:
    r"""
    >>> print(_toml('host="/tmp" user=it\\s'))
    "host=\"/tmp\" user=it\\s"
    """
    return json.dumps(text, ensure_ascii=False)
