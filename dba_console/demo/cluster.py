"""A real PostgreSQL cluster of one's own, for practice and for tests.

It listens on a unix socket in a private directory only, trusts whoever can enter there, and never outlives the process
that made it. No driver is needed: what has to be asked is asked through psql.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from dba_console.demo.binaries import Binaries, find_binaries
from dba_console.demo.cleanup_process import CleanupProcess
from dba_console.demo.installation_copy import is_readable_by_all
from dba_console.demo.postmaster import PID_FILE, PgCtlServer, PostmasterChild
from dba_console.demo.server_account import clean_environment, server_account
from dba_console.demo.server_settings import Settings, conninfo, write_settings
from dba_console.errors import ConnectError, ConsoleError
from dba_console.paths import SOCKET_PATH_LIMIT

__all__ = ["SUPERUSER", "Cluster", "Settings", "make_standby"]

SUPERUSER = "postgres"


class Cluster:
    """One data directory and the server on it.

    `base` holds everything: data/, socket/, server.log. Left out, a temporary directory is made and removed at the
    end. `durable=False` turns fsync off: for tests only. `data_directory` puts the data elsewhere, on a file system
    under test. Not `guarded`, the caller sees to it that nothing is left after a `kill -9` of this process.
    `with Cluster() as cluster:` makes, starts and always stops it.
    """

    def __init__(
        self,
        binaries: Binaries | None = None,
        *,
        base: Path | None = None,
        data_directory: Path | None = None,
        settings: Settings | None = None,
        durable: bool = True,
        keep: bool = False,
        guarded: bool = True,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self.account = server_account()
        self._keep = keep or base is not None
        self.base = base or Path(tempfile.mkdtemp(prefix="dba-console-", dir=scratch_directory()))
        self.data_directory = data_directory or self.base / "data"
        self.log_path = self.base / "server.log"
        self.port = _free_port()
        self.socket_directory = self._make_directories()
        self.settings: dict[str, str | int] = {} if durable else {"fsync": "off", "synchronous_commit": "off"}
        self.settings.update(settings or {})
        self._postmaster: PostmasterChild | PgCtlServer | None = None
        self._guard = (
            CleanupProcess([self.data_directory / PID_FILE], self._temporary_directories()) if guarded else None
        )

    def __enter__(self) -> Self:
        try:
            if not (self.data_directory / "PG_VERSION").exists():
                self.initdb()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- life ----------------------------------------------------------------------------------------------------

    def initdb(self, *options: str) -> None:
        """Make the data directory, with checksums. Raises ConsoleError with initdb's own words when it fails."""
        arguments = ["-D", str(self.data_directory), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--no-sync"]
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256", "--data-checksums", *options]
        self.run("initdb", *arguments)

    def start(self, settings: Settings | None = None, *, timeout_s: float = 60.0) -> None:
        """Start the server, with further settings if given, and return when it accepts connections.

        Raises ConnectError with the end of the server's log when it does not come up in time.
        """
        if self.running:
            return
        self.settings.update(settings or {})
        self._write_settings()
        self._postmaster = self._spawn()
        if not self._postmaster.wait_ready(timeout_s):
            self.stop("immediate")
            raise ConnectError(f"the server did not start: {self.log_text()[-1500:].strip()}")

    def stop(self, mode: str = "fast", *, timeout_s: float = 30.0) -> None:
        """Stop the server: smart, fast or immediate. One that does not go in time is killed."""
        if self._postmaster is not None:
            self._postmaster.stop(mode, timeout_s)
            self._postmaster = None

    def restart(self, settings: Settings | None = None, mode: str = "fast") -> None:
        self.stop(mode)
        self.start(settings)

    def kill(self) -> None:
        """SIGKILL to the postmaster, as the kernel's OOM killer does it; returns when its children are gone too."""
        if self._postmaster is not None:
            self._postmaster.kill()
            self._postmaster = None

    def sigstop(self) -> None:
        """Freeze the postmaster alone: sessions go on, new connections hang."""
        self._running_server().send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        self._running_server().send_signal(signal.SIGCONT)

    def reload(self, settings: Settings | None = None) -> None:
        """Write further settings, and have the server read them (SIGHUP: applied very soon, not at once)."""
        self.settings.update(settings or {})
        self._write_settings()
        self._running_server().send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop the server whatever its state, and remove what was temporary. May be called twice."""
        self.stop("immediate" if self.data_directory.is_relative_to(self.base) and not self._keep else "fast")
        for directory in self._temporary_directories():
            shutil.rmtree(directory, ignore_errors=True)
        if self._guard is not None:
            self._guard.release()
            self._guard = None

    # -- asking --------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.running

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, None when it does not run."""
        return self._postmaster.pid if self._postmaster is not None and self.running else None

    @property
    def major(self) -> int:
        return self.binaries.major

    def dsn(self, *, user: str = SUPERUSER, dbname: str = "postgres", **more: str | int) -> str:
        """A libpq connection string for this server; `more` as further keywords (application_name='x')."""
        return conninfo({"host": str(self.socket_directory), "port": self.port, "user": user, "dbname": dbname, **more})

    def psql(self, sql: str, *, user: str = SUPERUSER, dbname: str = "postgres", timeout_s: float = 60.0) -> str:
        """The result of SQL, one line per row, columns by `|`, NULL empty. Raises ConsoleError with psql's message."""
        arguments = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(user=user, dbname=dbname), "-c", sql]
        return self.run("psql", *arguments, timeout_s=timeout_s).strip("\n")

    def run(self, program: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run one of PostgreSQL's programs as the server's user; its output. Raises ConsoleError when it fails.

        A program this installation lacks comes from another one, not older than the server.
        """
        found = self.binaries
        if not found.has(program):
            found = find_binaries([program], at_least=self.major if program != "psql" else 0)
        command = [str(found.program(program)), *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, cwd="/",
            env=clean_environment(str(self.base)), **self.account.spawn,
        )  # fmt: skip
        if done.returncode != 0:
            raise ConsoleError(f"{program} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")

    def log_text(self) -> str:
        """What the server has written to its log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # -- inside --------------------------------------------------------------------------------------------------

    def _make_directories(self) -> Path:
        self.base.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.account.chown(self.base)
        sockets = self.base / "socket"
        if len(os.fsencode(sockets / f".s.PGSQL.{self.port}.lock")) > SOCKET_PATH_LIMIT:
            sockets = Path(tempfile.mkdtemp(prefix="dbac-", dir="/tmp"))
        sockets.mkdir(mode=0o700, exist_ok=True)
        self.account.chown(sockets)
        return sockets

    def _temporary_directories(self) -> list[Path]:
        own = [] if self._keep else [self.base]
        return own if self.socket_directory.is_relative_to(self.base) else [*own, self.socket_directory]

    def _write_settings(self) -> None:
        own: dict[str, str | int] = {
            "port": self.port, "listen_addresses": "", "unix_socket_directories": str(self.socket_directory),
            "shared_buffers": "32MB", "lc_messages": "C", "logging_collector": "off",
        }  # fmt: skip
        write_settings(self.data_directory, {**own, **self.settings}, self.account)

    def _spawn(self) -> PostmasterChild | PgCtlServer:
        return PostmasterChild(self.binaries.program("postgres"), self.data_directory, self.log_path, self.account)

    def _running_server(self) -> PostmasterChild | PgCtlServer:
        if self._postmaster is None:
            raise ConnectError("the server is not running")
        return self._postmaster


def make_standby(primary: Cluster, *, slot: str | None = None, settings: Settings | None = None) -> Cluster:
    """A streaming standby of a running cluster, made by pg_basebackup, not started. With `slot`, it uses that slot."""
    standby = Cluster(primary.binaries, settings={**primary.settings, **(settings or {})})
    arguments = ["-D", str(standby.data_directory), "-d", primary.dsn(application_name="standby"), "-R", "-c", "fast"]
    if slot is not None:
        arguments += ["-C", "-S", slot]
    try:
        standby.run("pg_basebackup", *arguments, "--no-sync")
    except BaseException:
        standby.close()
        raise
    return standby


def scratch_directory() -> str:
    """The caller's temporary directory where the server's user can enter it, else /tmp."""
    usual = tempfile.gettempdir()
    return usual if not server_account().switched or is_readable_by_all(Path(usual)) else "/tmp"


def _free_port() -> int:
    """A TCP port nobody listens on now; the socket lies in a directory of its own, so it only matters over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
