"""Real clients of a practice server: pgbench and psql as processes on a leash, their words in one log.

Start them from the main thread: a client ends with the thread that started it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from dba_console.demo.binaries import find_binaries
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.cluster import SUPERUSER, Cluster
from dba_console.demo.server_account import clean_environment
from dba_console.errors import ConnectError, ConsoleError

Client = subprocess.Popen[bytes]


class Clients:
    """Clients of one server, ended together. Scripts and the log lie in the cluster's directory."""

    def __init__(self, cluster: Cluster, log_name: str) -> None:
        self._cluster = cluster
        self._log = cluster.base / log_name
        self._running: list[Client] = []

    def pgbench(self, *arguments: str, role: str, application: str, dbname: str) -> Client:
        """A pgbench that goes on until it is ended."""
        dsn = self._cluster.dsn(user=role, dbname=dbname, application_name=application)
        return self.start("pgbench", "-n", "-T", "1000000", *arguments, dsn)

    def psql(self, *statements: str, role: str = SUPERUSER, application: str, dbname: str) -> Client:
        """A psql that runs `statements` one after the other, and then stays connected as somebody who thinks."""
        dsn = self._cluster.dsn(user=role, dbname=dbname, application_name=application)
        client = self.start("psql", "-XAtq", "-d", dsn, stdin=subprocess.PIPE)
        send_statements(client, *statements)
        return client

    def start(
        self, program: str, *arguments: str, stdin: int = subprocess.DEVNULL, output: int | None = None
    ) -> Client:
        """One of PostgreSQL's programs as the server's user; `output` takes its stdout and stderr instead of the log.

        A program this installation lacks comes from another one, not older than the server.
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
        """A file the clients can read. Raises ConsoleError where it cannot be written."""
        path = self._cluster.base / name
        try:
            path.write_text(text)
            self._cluster.account.chown(path)
        except OSError as error:
            raise ConsoleError(f"cannot write {path}: {error.strerror}") from error
        return path

    def check(self) -> None:
        """Raises ConnectError when a client ended by itself, with its last words."""
        for client in self._running:
            if client.poll() is not None:
                log_text = self._log.read_text(errors="replace").strip()
                raise ConnectError(f"the load ended by itself: {log_text[-500:] or 'it left no message'}")

    def stop(self) -> None:
        """End every client. May be called twice."""
        for client in self._running:
            client.terminate()
        for client in self._running:
            end_child(client)
        self._running.clear()


def send_statements(client: Client, *statements: str) -> None:
    """Type statements into a psql."""
    assert client.stdin is not None
    for statement in statements:
        client.stdin.write(statement.encode() + b"\n")
    client.stdin.flush()
