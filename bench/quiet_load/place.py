"""The servers of the quiet hour: a real cluster with ordinary settings, an archive, and a standby on a slot.

All files are in one directory, removed at exit. fsync is on: its cost is part of ordinary operation.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import Cluster, make_standby

DATABASE = "shop"
SLOT = "standby_a"
SETTINGS: dict[str, str | int] = {
    "max_connections": 250,
    "shared_buffers": "256MB",
    "track_io_timing": "on",
    "cluster_name": "quiet",
    "log_checkpoints": "on",
    "logging_collector": "on",
    "archive_mode": "on",
    "wal_level": "replica",
}


class QuietServer:
    """A cluster with a pgbench database of `scale` (15 MB each), and directories for archive, dumps and scratch files.

    `size` is 1 for an hour and less for a shorter run; it scales what is loaded, sorted, built and allocated.
    """

    def __init__(self, size: float = 1.0) -> None:
        self.size = min(1.0, max(0.02, size))
        self.scale = max(1, round(40 * self.size))
        self.cluster = Cluster(settings=SETTINGS)
        self.archive = self._directory("archive")
        self.dumps = self._directory("dumps")
        self.scratch = self._directory("scratch")
        self.dumping = threading.Lock()
        """Held while the parallel dump is written or read: in a short run two activities need it at once."""
        self.standby: Cluster | None = None
        self.agent_pid: int | None = None
        """Pid of the agent that monitors the cluster, if any."""

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop both servers and remove all files. May be called twice."""
        if self.standby is not None:
            self.standby.close()
        self.cluster.close()

    @property
    def dsn(self) -> str:
        """Connection string of the database under load, as the superuser."""
        return self.cluster.dsn(dbname=DATABASE)

    def tool(self, program: str, *arguments: str, tolerate: bool = False, timeout_s: float = 900.0) -> str:
        """Run one of PostgreSQL's programs as the server's user; return its output. Raises RuntimeError on failure.

        `tolerate`: ignore a failure, for clients that a restart may disconnect.
        """
        command = [str(self.cluster.binaries.program(program)), *arguments]
        account = self.cluster.account
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, cwd="/",
            env=clean_environment(str(self.cluster.base)), **account.spawn,
        )  # fmt: skip
        if done.returncode != 0 and not tolerate:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace').strip()[-300:]}")
        return done.stdout.decode(errors="replace")

    def host(self, *command: str, timeout_s: float = 300.0) -> None:
        """Run a program with `nice` in the scratch directory; discard its output.

        Raises subprocess.CalledProcessError on failure.
        """
        subprocess.run(
            ["nice", *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=timeout_s, check=True, cwd=self.scratch,
        )  # fmt: skip

    def connect(self, application: str, dbname: str = DATABASE, limit_s: float = 20.0) -> psycopg.Connection[Any]:
        """Open a session in autocommit. Retries while the server restarts, as an application does."""
        until = time.monotonic() + limit_s
        while True:
            try:
                return psycopg.connect(self.cluster.dsn(dbname=dbname, application_name=application), autocommit=True)
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def execute(self, *statements: str, application: str = "psql", dbname: str = DATABASE) -> None:
        """Execute statements in a separate session, one after the other."""
        with self.connect(application, dbname) as session:
            for statement in statements:
                session.execute(statement.encode())

    def connection_options(self, dbname: str = DATABASE) -> Sequence[str]:
        """Return connection options for PostgreSQL's programs."""
        cluster = self.cluster
        return ["-h", str(cluster.socket_directory), "-p", str(cluster.port), "-U", "postgres", dbname]

    def _directory(self, name: str) -> Path:
        path = self.cluster.base / name
        path.mkdir(mode=0o700)
        self.cluster.account.chown(path)
        return path

    def _set_up(self) -> None:
        cluster = self.cluster
        cluster.initdb()
        copy = f"test ! -f {self.archive}/%f && cp %p {self.archive}/%f"
        cluster.start({"archive_command": copy})
        cluster.psql(f"create database {DATABASE}")
        self.tool("pgbench", "-i", "-q", "-s", str(self.scale), *self.connection_options())
        self.execute(
            "create table visits (id bigserial primary key, page text, at timestamptz default now())",
            f"insert into visits (page) select 'page ' || g from generate_series(1, {round(100_000 * self.size)}) g",
        )
        self.standby = make_standby(cluster, slot=SLOT)
        os.sync()
