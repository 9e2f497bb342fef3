"""The postmaster as a process: started, stopped in each of PostgreSQL's modes, killed, frozen. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from dba_console.demo.server_account import Account, clean_environment
from dba_console.errors import ConnectError
from dba_console.probes.host.procstat import read_stat

PID_FILE = "postmaster.pid"
_READY = ("ready", "standby")
"""Line 8 of postmaster.pid (LOCK_FILE_LINE_PM_STATUS in PostgreSQL's miscadmin.h), which pg_ctl waits for too."""
_NO_LOCK_FILE_S = 5.0
"""A server whose lock file is not there after this time has ended."""
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostmasterChild:
    """One server process on a data directory; our child, so that its end is seen at once and it is always reaped."""

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
        """True when it accepts connections; False when it ended, or did not get there in time."""
        until = time.monotonic() + timeout_s
        while not is_ready(self._data_directory, self.pid):
            if not self.running or time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def stop(self, mode: str, timeout_s: float) -> None:
        """Stop it: smart, fast or immediate. One that does not go in time is killed."""
        everyone = child_pids(self.pid)
        if self.running:
            self._process.send_signal(_SIGNALS[mode])
            send_signals([self.pid, *everyone], signal.SIGCONT)  # a frozen process heeds no other signal
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap_all(everyone)

    def kill(self) -> None:
        """SIGKILL, as the kernel's OOM killer does it; returns when its children have noticed and gone too."""
        everyone = child_pids(self.pid)
        self._process.kill()
        send_signals(everyone, signal.SIGCONT)
        self._reap_all(everyone)

    def send_signal(self, number: signal.Signals) -> None:
        """A signal to the postmaster alone. Raises ConnectError when it does not run."""
        if not self.running:
            raise ConnectError("the server is not running")
        self._process.send_signal(number)

    def _reap_all(self, everyone: list[int]) -> None:
        """Reap it and wait for its children: one that holds shared memory keeps the next server from starting."""
        self._process.wait(30.0)  # even SIGKILL waits for a frozen file system; better an error than a hang
        send_signals(_wait_ended(everyone, 10.0), signal.SIGKILL)


class PgCtlServer:
    """The server on a data directory, started by `pg_ctl`: not our child, so others may stop it and start it again.

    Its process is the one that postmaster.pid names now.
    """

    def __init__(self, pg_ctl: Path, data_directory: Path, log_path: Path, account: Account) -> None:
        self._program, self._data_directory = pg_ctl, data_directory
        self._log_path, self._account = log_path, account

    def start(self) -> None:
        """Start it; `wait_ready` says what became of it."""
        self._log_path.touch()
        self._account.chown(self._log_path)
        # The exit code is left aside: what matters is whether it gets ready.
        subprocess.run(
            [str(self._program), "start", "-s", "-W", "-D", str(self._data_directory), "-l", str(self._log_path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", check=False,
            env=clean_environment(str(self._log_path.parent)), **self._account.spawn,
        )  # fmt: skip

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self._data_directory / PID_FILE).read_text().split("\n", 1)[0])
            # A left-over file may name a process of something else by now. One that ended and is not reaped has no cwd.
            return pid if os.readlink(f"/proc/{pid}/cwd") == str(self._data_directory) else None
        except (OSError, ValueError):
            return None

    @property
    def running(self) -> bool:
        return self.pid is not None

    def wait_ready(self, timeout_s: float) -> bool:
        """True when it accepts connections; False when it ended, or did not get there in time."""
        begun = time.monotonic()
        while (pid := self.pid) is None or not is_ready(self._data_directory, pid):
            # It writes its lock file a moment after it was started.
            if time.monotonic() - begun > (timeout_s if pid is not None else min(timeout_s, _NO_LOCK_FILE_S)):
                return False
            time.sleep(0.02)
        return True

    def stop(self, mode: str, timeout_s: float) -> None:
        """Stop it: smart, fast or immediate. One that does not go in time is killed."""
        if (pid := self.pid) is not None:
            self._stop_process(pid, _SIGNALS[mode], timeout_s)

    def kill(self) -> None:
        """SIGKILL, as the kernel's OOM killer does it; returns when its children have noticed and gone too."""
        if (pid := self.pid) is not None:
            self._stop_process(pid, signal.SIGKILL, 30.0)

    def send_signal(self, number: signal.Signals) -> None:
        """A signal to the postmaster alone. Raises ConnectError when it does not run."""
        if (pid := self.pid) is None:
            raise ConnectError("the server is not running")
        os.kill(pid, number)

    def _stop_process(self, pid: int, number: signal.Signals, timeout_s: float) -> None:
        everyone = child_pids(pid)
        send_signals([pid], number)
        send_signals([pid, *everyone], signal.SIGCONT)
        send_signals(_wait_ended([pid], timeout_s), signal.SIGKILL)
        send_signals(_wait_ended(everyone, 10.0), signal.SIGKILL)
        # Reaped as well, by the process of number 1: until then the lock file it left keeps a new server away.
        _wait_ended([pid], 10.0, "")


def _wait_ended(pids: Iterable[int], timeout_s: float, entry: str = "exe") -> list[int]:
    """Wait for the end of processes, which takes their program from them; those that have not ended in time."""
    until = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if os.path.exists(f"/proc/{pid}/{entry}")]) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def is_ready(data_directory: Path, pid: int) -> bool:
    """True when the postmaster `pid` says in its lock file that it accepts connections."""
    try:
        lines = (data_directory / PID_FILE).read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() in _READY


def child_pids(pid: int) -> list[int]:
    """The process ids whose parent is `pid`, in no order."""
    everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [one for one in everyone if (stat := read_stat("/proc", one)) is not None and stat.parent == pid]


def send_signals(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to each of several processes; one that ended meanwhile is passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
