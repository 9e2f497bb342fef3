"""Clients of a practice server: pgbench and psql as child processes with one log, and the standard load.

Start them from the main thread: a client ends with the thread that started it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.demo.binaries import find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import SUPERUSER, Cluster

Client = subprocess.Popen[bytes]


class Clients:
    """Clients of one server, ended together. Scripts and log are in the cluster's directory."""

    def __init__(self, cluster: Cluster, log_name: str) -> None:
        self._cluster = cluster
        self._log = cluster.base / log_name
        self._running: list[Client] = []

    def pgbench(self, *arguments: str, role: str, application: str, dbname: str) -> Client:
        """Start a pgbench that runs until it is ended."""
        dsn = self._cluster.dsn(user=role, dbname=dbname, application_name=application)
        return self.start("pgbench", "-n", "-T", "1000000", *arguments, dsn)

    def psql(self, *statements: str, role: str = SUPERUSER, application: str, dbname: str) -> Client:
        """Start a psql that runs `statements` one after the other, and then stays connected, idle."""
        dsn = self._cluster.dsn(user=role, dbname=dbname, application_name=application)
        client = self.start("psql", "-XAtq", "-d", dsn, stdin=subprocess.PIPE)
        send_statements(client, *statements)
        return client

    def start(
        self, program: str, *arguments: str, stdin: int = subprocess.DEVNULL, output: int | None = None
    ) -> Client:
        """Start one of PostgreSQL's programs as the server's user; `output` gets its stdout and stderr instead of the
        log.

        A program that this installation lacks is taken from another one, not older than the server.
        """
        binaries = self._cluster.binaries
        if not binaries.has(program):
            binaries = find_binaries([program], at_least=self._cluster.major)
        with self._log.open("ab") as log:
            client = start_child(
                [str(binaries.program(program)), *arguments],
                stdin=stdin,
                output=log if output is None else output,
                environment=clean_environment(str(self._cluster.base)),
                spawn=self._cluster.account.spawn,
            )
        self._running.append(client)
        return client

    def script(self, name: str, text: str) -> Path:
        """Write a file that the clients can read. Raises ConsoleError if it cannot be written."""
        path = self._cluster.base / name
        try:
            path.write_text(text)
            self._cluster.account.chown(path)
        except OSError as error:
            raise ConsoleError(f"cannot write {path}: {error.strerror}") from error
        return path

    def check(self) -> None:
        """Raises ConnectError if a client ended unexpectedly, with its last messages."""
        for client in self._running:
            if client.poll() is not None:
                log_text = self._log.read_text(errors="replace").strip()
                raise ConnectError(f"the load ended unexpectedly: {log_text[-500:] or 'no message'}")

    def stop(self) -> None:
        """End every client. May be called twice."""
        for client in self._running:
            client.terminate()
        for client in self._running:
            end_child(client)
        self._running.clear()


def send_statements(client: Client, *statements: str) -> None:
    """Send statements to a psql."""
    assert client.stdin is not None
    for statement in statements:
        client.stdin.write(statement.encode() + b"\n")
    client.stdin.flush()


# The standard load: an application at a steady rate, pools of idle sessions, one transaction left open. All of it is
# pgbench and psql: real clients over the real protocol, in four processes, so that it costs the host little compared
# with the server.

DATABASE = "shop"
ROLES = ("shop_web", "shop_jobs", "reporting")
_FORGOTTEN = ("begin;", "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 0, now());")
# pgbench stores a pause in microseconds in 32 bits: 30 minutes fit, an hour does not.
_PAUSE = "select 1;\n\\sleep 1800 s\n"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The load: `clients` with `rate_per_s` TPC-B-like transactions together, `idle` sessions, one left in a
    transaction.

    `scale` is pgbench's: 100,000 accounts, about 15 MB, each.
    """

    clients: int = 20
    rate_per_s: int = 150
    idle: int = 180
    forgotten: bool = True
    scale: int = 5

    @property
    def sessions(self) -> int:
        """The total number of connections."""
        return self.clients + self.idle + int(self.forgotten)


class Load:
    """Runs a plan against a cluster. `with Load(cluster, plan):` starts it once, and ends every client at the end."""

    def __init__(self, cluster: Cluster, plan: LoadPlan | None = None) -> None:
        self.cluster = cluster
        self.plan = plan or LoadPlan()
        self._clients = Clients(cluster, "load.log")

    def __enter__(self) -> Load:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Create the database, its roles and its tables, unless they exist. Raises ConsoleError if that fails."""
        if self.cluster.psql(f"select 1 from pg_database where datname = '{DATABASE}'"):
            return
        for role in ROLES:
            self.cluster.psql(f"create role {role} login; grant pg_read_all_data, pg_write_all_data to {role}")
        self.cluster.psql(f"create database {DATABASE}")
        initialize = ["-i", "-q", "-s", str(self.plan.scale), self.cluster.dsn(dbname=DATABASE)]
        self.cluster.run("pgbench", *initialize)

    def start(self) -> None:
        """Start every client. They connect asynchronously: `wait_connected` waits for that."""
        plan = self.plan
        if plan.clients:
            pace = ["-c", str(plan.clients), "-R", str(plan.rate_per_s), "-M", "prepared"]
            self._pgbench(pace, role="shop_web", application="shop-web")
        pause = self._clients.script("pause.sql", _PAUSE)
        for share, role, application in _idle_pools(plan.idle):
            self._pgbench(["-c", str(share), "-f", str(pause)], role=role, application=application)
        if plan.forgotten:
            self._clients.psql(*_FORGOTTEN, role="reporting", application="monthly-report", dbname=DATABASE)

    def stop(self) -> None:
        """End every client."""
        self._clients.stop()

    def connected(self) -> int:
        """Return the number of sessions the load has on the server now."""
        roles = ", ".join(f"'{role}'" for role in ROLES)
        return int(self.cluster.psql(f"select count(*) from pg_stat_activity where usename in ({roles})"))

    def check(self) -> None:
        """Raises ConnectError if a client ended, with its last messages."""
        self._clients.check()

    def _pgbench(self, arguments: list[str], *, role: str, application: str) -> None:
        self._clients.pgbench(*arguments, role=role, application=application, dbname=DATABASE)


def _idle_pools(idle: int) -> list[tuple[int, str, str]]:
    """Return the pools of idle sessions: two thirds web application, the rest background jobs.

    >>> _idle_pools(180)
    [(120, 'shop_web', 'shop-web-pool'), (60, 'shop_jobs', 'shop-jobs')]
    >>> _idle_pools(0)
    []
    """
    web = idle * 2 // 3
    pools = [(web, "shop_web", "shop-web-pool"), (idle - web, "shop_jobs", "shop-jobs")]
    return [pool for pool in pools if pool[0] > 0]
