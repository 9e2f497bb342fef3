"""A PostgreSQL server in a private directory, for practice and tests: initdb, start, stop, standbys, removal.

It listens only on a unix socket in a private directory, trusts every user that can enter it, and never outlives the
process that created it. No driver is needed: queries run through psql.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from dba_console.core.errors import ConnectError, ConsoleError
from dba_console.core.paths import SOCKET_PATH_LIMIT
from dba_console.core.target import conninfo as conninfo
from dba_console.demo.binaries import Binaries, find_binaries, is_readable_by_all
from dba_console.demo.cleanup_process import CleanupProcess
from dba_console.demo.server_account import Account, clean_environment, server_account

# The postmaster process: start, stop in each of PostgreSQL's modes, kill, SIGSTOP. Linux only.

PID_FILE = "postmaster.pid"
_READY = ("ready", "standby")
"""Line 8 of postmaster.pid (LOCK_FILE_LINE_PM_STATUS in PostgreSQL's miscadmin.h), which pg_ctl waits for too."""
_NO_LOCK_FILE_S = 5.0
"""A server without a lock file after this time has ended."""
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostmasterChild:
    """A server process on a data directory, as our child: its end is noticed at once and it is always reaped."""

    def __init__(self, program: Path, data_directory: Path, log_path: Path, account: Account) -> None:
        self._data_directory = data_directory
        with log_path.open("ab") as log:
            account.chown(log_path)
            self._process = subprocess.Popen(
                [str(program), "-D", str(data_directory)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                start_new_session=True, env=clean_environment(str(log_path.parent)), **account.spawn,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> bool:
        """Return True when it accepts connections; False if it ended, or after the timeout."""
        until = time.monotonic() + timeout_s
        while not is_ready(self._data_directory, self.pid):
            if not self.running or time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def stop(self, mode: str, timeout_s: float) -> None:
        """Stop it: smart, fast or immediate. After the timeout it is killed."""
        children = child_processes(self.pid)
        if self.running:
            self._process.send_signal(_SIGNALS[mode])
            self._process.send_signal(signal.SIGCONT)  # a stopped process handles no other signal
            send_signals(children, signal.SIGCONT)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap_all(children)

    def kill(self) -> None:
        """Send SIGKILL, as the kernel's OOM killer does; return when its children have ended too."""
        children = child_processes(self.pid)
        self._process.kill()
        send_signals(children, signal.SIGCONT)
        self._reap_all(children)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster only. Raises ConnectError if it is not running."""
        if not self.running:
            raise ConnectError("the server is not running")
        self._process.send_signal(number)

    def _reap_all(self, children: list[psutil.Process]) -> None:
        """Reap it and wait for its children: one that holds shared memory keeps the next server from starting."""
        self._process.wait(30.0)  # even SIGKILL waits for a frozen file system; an error is better than a hang
        send_signals(_wait_ended(children, 10.0), signal.SIGKILL)


class PgCtlServer:
    """The server on a data directory, started by `pg_ctl`: not our child, so others may stop it and start it again.

    Its process is the one in postmaster.pid now.
    """

    def __init__(self, pg_ctl: Path, data_directory: Path, log_path: Path, account: Account) -> None:
        self._program, self._data_directory = pg_ctl, data_directory
        self._log_path, self._account = log_path, account

    def start(self) -> None:
        """Start it; `wait_ready` returns the result."""
        self._log_path.touch()
        self._account.chown(self._log_path)
        # The exit code is ignored: what matters is whether the server becomes ready.
        subprocess.run(
            [str(self._program), "start", "-s", "-W", "-D", str(self._data_directory), "-l", str(self._log_path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", check=False,
            env=clean_environment(str(self._log_path.parent)), **self._account.spawn,
        )  # fmt: skip

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self._data_directory / PID_FILE).read_text().split("\n", 1)[0])
            # The pid in a left-over file may belong to another program by now. A zombie has no cwd.
            return pid if os.readlink(f"/proc/{pid}/cwd") == str(self._data_directory) else None
        except (OSError, ValueError):
            return None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def wait_ready(self, timeout_s: float) -> bool:
        """Return True when it accepts connections; False if it ended, or after the timeout."""
        started = time.monotonic()
        while (pid := self.pid) is None or not is_ready(self._data_directory, pid):
            # It writes its lock file a moment after its start.
            if time.monotonic() - started > (timeout_s if pid is not None else min(timeout_s, _NO_LOCK_FILE_S)):
                return False
            time.sleep(0.02)
        return True

    def stop(self, mode: str, timeout_s: float) -> None:
        """Stop it: smart, fast or immediate. After the timeout it is killed."""
        if (pid := self.pid) is not None:
            self._stop_process(pid, _SIGNALS[mode], timeout_s)

    def kill(self) -> None:
        """Send SIGKILL, as the kernel's OOM killer does; return when its children have ended too."""
        if (pid := self.pid) is not None:
            self._stop_process(pid, signal.SIGKILL, 30.0)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster only. Raises ConnectError if it is not running."""
        if (pid := self.pid) is None:
            raise ConnectError("the server is not running")
        os.kill(pid, number)

    def _stop_process(self, pid: int, number: signal.Signals, timeout_s: float) -> None:
        children = child_processes(pid)
        try:
            server = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return
        send_signals([server], number)
        send_signals([server, *children], signal.SIGCONT)
        send_signals(_wait_ended([server], timeout_s), signal.SIGKILL)
        send_signals(_wait_ended(children, 10.0), signal.SIGKILL)
        # Reaped as well, by process 1: until then its lock file prevents a new server.
        psutil.wait_procs([server], 10.0)


def _wait_ended(processes: Iterable[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until the processes have ended, reaped or not; return those that have not after the timeout."""
    until = time.monotonic() + timeout_s
    while (left := [process for process in processes if _is_alive(process)]) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def is_ready(data_directory: Path, pid: int) -> bool:
    """Check whether the lock file of postmaster `pid` says that it accepts connections."""
    try:
        lines = (data_directory / PID_FILE).read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() in _READY


def child_processes(pid: int) -> list[psutil.Process]:
    """Return the children of a process, in no order; empty if it has ended."""
    try:
        return list(psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return []


def send_signals(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to each of several processes; one that has ended is skipped, also if its pid is another's now."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


# Two configuration formats: postgresql.conf and libpq's connection string.

Settings = Mapping[str, str | int]
_OWN_FILE = "dba_console.conf"


def write_settings(data_directory: Path, settings: Settings, account: Account) -> None:
    """Write `settings`, effective from the next start or reload. initdb's own file stays, and includes this one."""
    path = data_directory / _OWN_FILE
    path.write_text("".join(f"{name} = {_conf_value(str(value))}\n" for name, value in settings.items()))
    account.chown(path)
    main = data_directory / "postgresql.conf"
    line = f"include '{_OWN_FILE}'\n"
    if line not in main.read_text():
        with main.open("a") as file:
            file.write(line)


def _conf_value(value: str) -> str:
    r"""
    >>> print(_conf_value(r"a'b\c"))
    'a''b\\c'
    """
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


SUPERUSER = "postgres"


class StartedInBlock(ABC):
    """What runs in a `with` block: closed at its end, and also if its start fails."""

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End everything. May be called twice."""

    @abstractmethod
    def _set_up(self) -> None:
        """Start it; return when it can be used."""


class Cluster(StartedInBlock):
    """One data directory and its server.

    `base` contains everything: data/, socket/, server.log. Without it a temporary directory is created and removed at
    the end. `durable=False` turns fsync off: for tests only. `data_directory` puts the data elsewhere, on a file system
    under test. Without `guarded`, the caller must clean up after a `kill -9` of this process. `with Cluster() as
    cluster:` creates, starts and always stops it.
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

    def _set_up(self) -> None:
        if not (self.data_directory / "PG_VERSION").exists():
            self.initdb()
        self.start()

    # -- lifecycle -----------------------------------------------------------------------------------------------

    def initdb(self, *options: str) -> None:
        """Create the data directory, with checksums. Raises ConsoleError with initdb's message if it fails."""
        arguments = ["-D", str(self.data_directory), "-U", SUPERUSER, "--encoding=UTF8", "--locale=C", "--no-sync"]
        arguments += ["--auth-local=trust", "--auth-host=scram-sha-256", "--data-checksums", *options]
        self.run("initdb", *arguments)

    def start(self, settings: Settings | None = None, *, timeout_s: float = 60.0) -> None:
        """Start the server, with additional settings, and return when it accepts connections.

        Raises ConnectError with the end of the server's log if it does not start in time.
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
        """Stop the server: smart, fast or immediate. After the timeout it is killed."""
        if self._postmaster is not None:
            self._postmaster.stop(mode, timeout_s)
            self._postmaster = None

    def restart(self, settings: Settings | None = None, mode: str = "fast") -> None:
        self.stop(mode)
        self.start(settings)

    def kill(self) -> None:
        """Send SIGKILL to the postmaster, as the kernel's OOM killer does; return when its children have ended too."""
        if self._postmaster is not None:
            self._postmaster.kill()
            self._postmaster = None

    def sigstop(self) -> None:
        """Stop the postmaster only (SIGSTOP): sessions continue, new connections hang."""
        self._running_server().send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        self._running_server().send_signal(signal.SIGCONT)

    def reload(self, settings: Settings | None = None) -> None:
        """Write additional settings and reload (SIGHUP: applied very soon, not at once)."""
        self.settings.update(settings or {})
        self._write_settings()
        self._running_server().send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop the server whatever its state, and remove temporary directories. May be called twice."""
        self.stop("immediate" if self.data_directory.is_relative_to(self.base) and not self._keep else "fast")
        for directory in self._temporary_directories():
            shutil.rmtree(directory, ignore_errors=True)
        if self._guard is not None:
            self._guard.release()
            self._guard = None

    # -- queries -------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.running

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, None if it is not running."""
        return self._postmaster.pid if self._postmaster is not None and self.running else None

    @property
    def major(self) -> int:
        return self.binaries.major

    def dsn(self, *, user: str = SUPERUSER, dbname: str = "postgres", **more: str | int) -> str:
        """Return a libpq connection string for this server; `more` are further keywords (application_name='x')."""
        return conninfo({"host": str(self.socket_directory), "port": self.port, "user": user, "dbname": dbname, **more})

    def psql(self, sql: str, *, user: str = SUPERUSER, dbname: str = "postgres", timeout_s: float = 60.0) -> str:
        """Return the result of SQL, one line per row, columns by `|`, NULL empty. Raises ConsoleError on failure."""
        arguments = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(user=user, dbname=dbname), "-c", sql]
        return self.run("psql", *arguments, timeout_s=timeout_s).strip("\n")

    def run(self, program: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """Run one of PostgreSQL's programs as the server's user and return its output. Raises ConsoleError if it fails.

        A program that this installation lacks is taken from another one, not older than the server.
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
        """Return what the server has written to its log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # -- internal ------------------------------------------------------------------------------------------------

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
    """Create a streaming standby of a running cluster with pg_basebackup, not started. `slot`: the slot it uses."""
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
    """Return the caller's temporary directory if the server's user can enter it, else /tmp."""
    usual = tempfile.gettempdir()
    return usual if not server_account().switched or is_readable_by_all(Path(usual)) else "/tmp"


def _free_port() -> int:
    """Return an unused TCP port; the socket has its own directory, so the port only matters over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
