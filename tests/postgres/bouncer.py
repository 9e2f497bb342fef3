"""A real PgBouncer before a cluster, on a TCP port of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from dba_console.demo.cluster import Cluster
from tests.background import wait_until
from tests.requirements import require_tool


@contextmanager
def bouncer(
    cluster: Cluster, mode: str, *, admin: bool, max_clients: int = 100, dbname: str = "postgres"
) -> Iterator[str]:
    """The conninfo of the pooler; `admin` lets everybody ask its admin console."""
    program = require_tool("pgbouncer")
    directory = cluster.base / f"bouncer-{mode}-{admin}"
    directory.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (directory / "users.txt").write_text('"postgres" ""\n"nobody" ""\n')
    (directory / "bouncer.ini").write_text(
        f"[databases]\n* = host={cluster.socket_directory} port={cluster.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {directory}/users.txt\npool_mode = {mode}\ndefault_pool_size = 2\nserver_login_retry = 1\n"
        f"max_client_conn = {max_clients}\n" + ("admin_users = postgres\n" if admin else "")
    )
    for path in (directory, *directory.iterdir()):
        if cluster.account.switched:
            os.chown(path, cluster.account.uid, cluster.account.gid)
    process = subprocess.Popen(
        [program, str(directory / "bouncer.ini")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, cwd="/", **cluster.account.spawn,
    )  # fmt: skip
    try:
        wait_until(lambda: _listens(port), what="PgBouncer listening")
        yield f"host=127.0.0.1 port={port} user=postgres dbname={dbname} sslmode=disable gssencmode=disable"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
