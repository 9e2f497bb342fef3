"""A PgBouncer in transaction mode in front of the practice cluster, if installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dba_console.core.errors import ConnectError
from dba_console.demo.server_account import Account, clean_environment
from dba_console.demo.temporary_server import SUPERUSER, conninfo

START_S = 10.0
PORT = 6432
"""Only part of the socket's name: no TCP port is opened, because a client that reaches it is trusted as any user."""


def find_pgbouncer() -> str | None:
    """Return its path; packages install it outside ordinary users' PATH."""
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin")


class ServerAddress(Protocol):
    """Address of a server."""

    @property
    def socket_directory(self) -> Path | str: ...
    @property
    def port(self) -> int: ...


class Pooler:
    """One PgBouncer, its files in `directory`; not a child process, so others may stop it and start it again."""

    def __init__(self, program: str, directory: Path, account: Account, users: tuple[str, ...]) -> None:
        self._program, self._account, self._users = program, account, users
        self.directory = directory
        self.config = directory / "pgbouncer.ini"
        self.pid_file = directory / "pgbouncer.pid"

    def dsn(self, *, user: str = SUPERUSER, dbname: str = "pgbouncer", **more: str | int) -> str:
        """Return a connection string through it; by default to its admin console."""
        return conninfo({"host": str(self.directory), "port": PORT, "user": user, "dbname": dbname, **more})

    def start(self, database: str, primary: ServerAddress) -> None:
        """Start it, with `database` on `primary`. Raises ConnectError with the end of its log."""
        self.directory.mkdir(mode=0o700)
        users = self.directory / "users.txt"
        users.write_text("".join(f'"{name}" ""\n' for name in self._users))
        self.config.write_text(
            f"[databases]\n{database} = host={primary.socket_directory} port={primary.port}\n\n[pgbouncer]\n"
            f"listen_addr =\nlisten_port = {PORT}\nunix_socket_dir = {self.directory}\n"
            f"auth_type = trust\nauth_file = {users}\nadmin_users = {SUPERUSER}\n"
            "pool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 200\n"
            # After a refused server login it retries after 1 s, and not after 15 s.
            "server_login_retry = 1\n"
            f"pidfile = {self.pid_file}\nlogfile = {self._log}\n"
        )
        for path in (self.directory, users, self.config):
            self._account.chown(path)
        self.launch()

    def launch(self) -> None:
        """Start it again after `stop`, or after it was killed. Raises ConnectError with the end of its log."""
        for left in (self.pid_file, self.directory / f".s.PGSQL.{PORT}"):
            left.unlink(missing_ok=True)
        subprocess.run(
            [self._program, "-d", "-q", str(self.config)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=self.directory, check=False, env=clean_environment(), **self._account.spawn,
        )  # fmt: skip
        until = time.monotonic() + START_S
        while not self._listens():
            if time.monotonic() > until:
                text = self._log.read_text(errors="replace") if self._log.exists() else "no message"
                raise ConnectError(f"PgBouncer did not start: {text[-1000:].strip()}")
            time.sleep(0.02)

    def set_mode(self, mode: str) -> None:
        """Change its pool mode to session or transaction."""
        lines = self.config.read_text().splitlines(keepends=True)
        changed = (f"pool_mode = {mode}\n" if line.startswith("pool_mode") else line for line in lines)
        self.config.write_text("".join(changed))
        self._signal(signal.SIGHUP)

    @property
    def pid(self) -> int | None:
        """Its pid, None if it is not running."""
        try:
            pid = int(self.pid_file.read_text())
            return pid if str(self.config).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else None
        except (OSError, ValueError):
            return None

    def stop(self) -> None:
        """End it at once, with every connection through it. May be called twice."""
        until = time.monotonic() + START_S
        while self._signal(signal.SIGKILL if time.monotonic() > until else signal.SIGQUIT):
            time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> bool:
        """Send it a signal; return whether it ran."""
        if (pid := self.pid) is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    @property
    def _log(self) -> Path:
        return self.directory / "pgbouncer.log"

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.directory / f".s.PGSQL.{PORT}")) == 0
