"""A primary, its standbys and a PgBouncer in front of them, to measure cutovers: real servers controlled by pg_ctl.

Nodes listen on the loopback interface and trust it. All files are in temporary directories, removed at exit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from dba_console.core.errors import ConsoleError
from dba_console.demo.binaries import find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster, Settings, conninfo
from tests.servers import server_binaries

DATABASE = "shop"
NAME = "shop"
ROLE = "shop_web"
"""Role of the clients: not a superuser, to whom connection limits do not apply."""
_TRUST = "".join(f"{how} trust\n" for how in ("local all all", "local replication all", "host all all 127.0.0.1/32",
                                              "host replication all 127.0.0.1/32"))  # fmt: skip
SETTINGS: Settings = {
    "listen_addresses": "127.0.0.1", "shared_buffers": "128MB", "wal_log_hints": "on", "wal_keep_size": "512MB",
}  # fmt: skip


class Pair:
    """A pair of servers. `nodes` names them; the first starts as primary. `scale` is pgbench's, 0 creates no tables.
    `major`: their version; 0: the one that is installed here."""

    def __init__(
        self, nodes: tuple[str, ...] = ("db1", "db2"), *, scale: int = 10, settings: Settings | None = None,
        major: int = 0,
    ) -> None:  # fmt: skip
        self.names, self._major = nodes, major
        self.base = Path(tempfile.mkdtemp(prefix="bench-pair-", dir="/tmp"))
        self._scale, self._settings = scale, {**SETTINGS, **(settings or {})}
        self._stack = ExitStack()
        self.nodes: dict[str, Cluster] = {}
        self.pooler_port = 0
        self._pooler: subprocess.Popen[bytes] | None = None

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
        self.kill_pooler()
        for name in self.nodes:
            if self.running(name):
                self.pg_ctl(name, "stop", "-m", "immediate", check=False)
        self._stack.close()
        shutil.rmtree(self.base, ignore_errors=True)

    def _make(self) -> None:
        binaries = server_binaries(self._major) if self._major else None
        primary = Cluster(binaries, settings=self._settings)
        self._stack.callback(primary.close)
        self.account = primary.account
        self.account.chown(self.base)
        primary.initdb()
        (primary.data_directory / "pg_hba.conf").write_text(_TRUST)
        primary.start()
        primary.psql(f"create role {ROLE} login")
        primary.psql(f"create database {DATABASE} owner {ROLE}")
        self.nodes[self.names[0]] = primary
        if self._scale:
            self.program("pgbench", "-i", "-q", "-s", str(self._scale), self.dsn(self.names[0], user=ROLE))
        primary.stop()
        for name in self.names[1:]:  # copied: not every installation has pg_basebackup
            self.nodes[name] = standby = Cluster(primary.binaries, settings=self._settings)
            self._stack.callback(standby.close)
            command = ["cp", "-a", "--reflink=auto", str(primary.data_directory), str(standby.data_directory)]
            subprocess.run(command, check=True)
            self.follow(name, self.names[0])
            standby.start()  # writes its own settings
            standby.stop()
        for name in self.names:
            self.pg_ctl(name, "start")
        self.await_standbys()
        self.pooler_ini = self.base / "pgbouncer.ini"
        self._write_pooler()
        self.start_pooler()

    # -- nodes ----------------------------------------------------------------------------------------------------

    def dsn(self, node: str, dbname: str = DATABASE, user: str = "postgres") -> str:
        return conninfo({"host": "127.0.0.1", "port": self.nodes[node].port, "user": user, "dbname": dbname})

    def program(self, name: str, *arguments: str, timeout_s: float = 120.0, check: bool = True) -> str:
        """Run one of PostgreSQL's programs as the servers' user; return its output. Raises ConsoleError on failure."""
        done = subprocess.run(
            [self.path_of(name), *arguments], stdin=subprocess.DEVNULL, capture_output=True, cwd="/",
            timeout=timeout_s, check=False, env=clean_environment(str(self.base)), **self.account.spawn,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise ConsoleError(f"{name} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace").strip()

    def path_of(self, name: str) -> str:
        """Return the path of a program; not every installation has the clients."""
        binaries = self.nodes[self.names[0]].binaries
        return str((binaries if binaries.has(name) else find_binaries([name])).program(name))

    def psql(self, node: str, sql: str) -> str:
        return self.program("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(node), "-c", sql)

    def pg_ctl(self, node: str, command: str, *arguments: str, check: bool = True) -> None:
        """Run `pg_ctl COMMAND -w`; a server started by it outlives the program that started it."""
        cluster = self.nodes[node]
        log = ["-l", str(cluster.log_path)] if command == "start" else []
        self.program("pg_ctl", command, "-w", "-D", str(cluster.data_directory), *log, *arguments, check=check)

    def running(self, node: str) -> bool:
        return (self.nodes[node].data_directory / "postmaster.pid").exists()

    def kill(self, node: str) -> None:
        """Send SIGKILL to the postmaster; its children end with it."""
        os.kill(int((self.nodes[node].data_directory / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def follow(self, node: str, primary: str) -> None:
        """Make a stopped server a standby of `primary`."""
        source = self.dsn(primary, "replication") + f" application_name={node}"
        self.forget_upstream(node)
        with (self.nodes[node].data_directory / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\n")
        signal_file = self.nodes[node].data_directory / "standby.signal"
        signal_file.touch()
        self.account.chown(signal_file)

    def forget_upstream(self, node: str) -> None:
        """Remove the node's primary_conninfo and primary_slot_name. The runbook uses slots; for the other methods
        wal_keep_size keeps the WAL, and a slot name left over would refer to a slot that does not exist."""
        auto = self.nodes[node].data_directory / "postgresql.auto.conf"
        lines = auto.read_text().splitlines(keepends=True)
        auto.write_text("".join(line for line in lines if not line.startswith(("primary_", "# dba-console"))))

    def primaries(self) -> list[str]:
        """Return the running nodes that are not in recovery."""
        found = []
        for name in self.names:
            try:
                if self.psql(name, "select pg_is_in_recovery()") == "f":
                    found.append(name)
            except ConsoleError:
                continue  # stopped, or starting
        return found

    def await_standbys(self, limit_s: float = 60.0) -> str:
        """Wait until one node is the primary and all others have replayed its WAL; return its name."""
        until = time.monotonic() + limit_s
        caught_up = "select count(*) from pg_stat_replication where state = 'streaming'"
        caught_up += " and pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) < 1048576"
        while time.monotonic() < until:
            found = self.primaries()
            if len(found) == 1 and int(self.psql(found[0], caught_up)) == len(self.names) - 1:
                return found[0]
            time.sleep(0.1)
        raise ConsoleError(f"no primary with {len(self.names) - 1} streaming standbys; primaries: {self.primaries()}")

    # -- the pooler -----------------------------------------------------------------------------------------------

    @property
    def clients(self) -> str:
        """Connection string of the clients, through the pooler."""
        return conninfo({"host": "127.0.0.1", "port": self.pooler_port, "user": ROLE, "dbname": DATABASE})

    @property
    def admin(self) -> str:
        """Connection string of the pooler's admin console."""
        return conninfo({"host": "127.0.0.1", "port": self.pooler_port, "user": "postgres", "dbname": "pgbouncer"})

    def pooler(self, command: str) -> None:
        """Send one command to the pooler's admin console by psql."""
        self.program("psql", "-XAtq", "-d", self.admin, "-c", command)

    def pooler_leads_to(self, node: str) -> None:
        """Write the node's port to the pooler's configuration; `RELOAD` applies it."""
        self.pooler_ini.write_text(self._pooler_text.format(port=self.nodes[node].port))

    def start_pooler(self) -> None:
        found = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if found is None:
            raise ConsoleError("pgbouncer is not installed")
        with (self.base / "pgbouncer.log").open("ab") as log:
            self._pooler = start_child(
                [found, str(self.pooler_ini)], output=log, environment=clean_environment(str(self.base)),
                spawn=self.account.spawn,
            )  # fmt: skip
        until = time.monotonic() + 20
        while True:
            try:
                return psycopg.connect(self.clients, prepare_threshold=None, connect_timeout=5).close()
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def kill_pooler(self) -> None:
        if self._pooler is not None:
            self._pooler.kill()
            end_child(self._pooler)

    def _write_pooler(self) -> None:
        self.pooler_port = self._free_port()
        users = self.base / "users.txt"
        users.write_text(f'"postgres" ""\n"{ROLE}" ""\n')
        self._pooler_text = (
            f"[databases]\n{DATABASE} = host=127.0.0.1 port={{port}} dbname={DATABASE}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.pooler_port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\nadmin_users = postgres\npool_mode = transaction\n"
            f"default_pool_size = 20\nmax_client_conn = 200\nserver_login_retry = 1\n"
        )
        self.pooler_leads_to(self.names[0])
        for path in (users, self.pooler_ini):
            self.account.chown(path)

    @staticmethod
    def _free_port() -> int:
        import socket

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def configuration(self, *, clients: str | None = None) -> str:
        """Return the console's configuration `[clusters.shop]`."""
        lines = [f"[clusters.{NAME}]", f"clients = '{clients or self.clients}'"]
        for name, cluster in self.nodes.items():
            lines += [
                f"[clusters.{NAME}.nodes.{name}]",
                f"dsn = '{self.dsn(name)}'",
                "control = 'pg_ctl'",
                f"data_directory = '{cluster.data_directory}'",
                f"bin_directory = '{cluster.binaries.directory}'",
            ]
        lines += [
            f"[clusters.{NAME}.poolers.main]",
            f"dsn = '{self.admin}'",
            f"databases = ['{DATABASE}']",
            f"config = '{self.pooler_ini}'",
        ]
        return "\n".join(lines) + "\n"
