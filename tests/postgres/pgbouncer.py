"""A real PgBouncer before a cluster, on a TCP port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.requirements import require_tool


@contextmanager
def running_pgbouncer(
    cluster: Cluster, mode: str, *, admin: bool, max_clients: int = 100, dbname: str = "postgres"
) -> Iterator[str]:
    """The conninfo of the pooler; `admin` lets everybody ask its admin console."""
    with PgBouncer(
        cluster,
        f"bouncer-{mode}-{admin}",
        f"* = {PgBouncer.database_line(cluster)} user=postgres",
        pool_mode=mode, max_client_conn=max_clients, admin_users="postgres" if admin else "",
    ) as pooler:  # fmt: skip
        yield pooler.dsn(dbname)


class PgBouncer:
    """A PgBouncer whose file, user and process a test may change; it runs as the cluster's user."""

    def __init__(self, cluster: Cluster, name: str, databases: str, *, users: str = "", **settings: object) -> None:
        """`databases` are the lines of [databases], `users` those of [users], `settings` those of [pgbouncer]."""
        self._program = require_tool("pgbouncer")
        self._account = cluster.account
        self.directory = cluster.base / name
        self.ini = self.directory / "bouncer.ini"
        self.process: subprocess.Popen[bytes] | None = None
        self.directory.mkdir(exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        every = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "trust",
            "auth_file": self.directory / "users.txt", "logfile": self.directory / "bouncer.log",
            "pool_mode": "session", "default_pool_size": 2, "server_login_retry": 1, **settings,
        }  # fmt: skip
        (self.directory / "users.txt").write_text('"postgres" "hushhush"\n"nobody" "hushhush"\n')
        lines = "\n".join(f"{key} = {value}" for key, value in every.items() if value != "" or key == "unix_socket_dir")
        self.ini.write_text(f"[databases]\n{databases}\n[users]\n{users}\n[pgbouncer]\n{lines}\n")
        for path in (self.directory, *self.directory.iterdir()):
            if self._account.switched:
                os.chown(path, self._account.uid, self._account.gid)

    @staticmethod
    def database_line(cluster: Cluster) -> str:
        """What leads to `cluster` in a line of [databases]."""
        return f"host={cluster.socket_directory} port={cluster.port}"

    def __enter__(self) -> PgBouncer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self._program, str(self.ini)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", **self._account.spawn,
        )  # fmt: skip
        wait_until(lambda: _is_listening(self.port), what="PgBouncer listening")

    def kill(self) -> None:
        """End it at once; no client or server connection is left."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def dsn(self, dbname: str, *, user: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} user={user} dbname={dbname} sslmode=disable gssencmode=disable"


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
