"""The postmaster as a process: started, stopped in each of PostgreSQL's modes, killed, frozen. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from dba_console.demo.account import Account, clean_environment
from dba_console.errors import ConnectError
from dba_console.probes.host.procstat import stat_of

_READY = ("ready", "standby")
"""Line 8 of postmaster.pid (LOCK_FILE_LINE_PM_STATUS in PostgreSQL's miscadmin.h), which pg_ctl waits for too."""
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postmaster:
    """One server process on a data directory; our child, so that its end is seen at once and it is always reaped."""

    def __init__(self, program: Path, data_directory: Path, log_path: Path, account: Account) -> None:
        self._data_directory = data_directory
        with log_path.open("ab") as log:
            account.own(log_path)
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
        everyone = children_of(self.pid)
        if self.running:
            self._process.send_signal(_SIGNALS[mode])
            send_all([self.pid, *everyone], signal.SIGCONT)  # a frozen process heeds no other signal
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._wait_gone(everyone)

    def kill(self) -> None:
        """SIGKILL, as the kernel's OOM killer does it; returns when its children have noticed and gone too."""
        everyone = children_of(self.pid)
        self._process.kill()
        send_all(everyone, signal.SIGCONT)
        self._wait_gone(everyone)

    def send(self, number: signal.Signals) -> None:
        """A signal to the postmaster alone. Raises ConnectError when it does not run."""
        if not self.running:
            raise ConnectError("the server is not running")
        self._process.send_signal(number)

    def _wait_gone(self, everyone: list[int]) -> None:
        """Reap it and wait for its children: one that holds shared memory keeps the next server from starting."""
        self._process.wait(30.0)  # even SIGKILL waits for a frozen file system; better an error than a hang
        until = time.monotonic() + 10.0
        while (left := [pid for pid in everyone if os.path.exists(f"/proc/{pid}/exe")]) and time.monotonic() < until:
            time.sleep(0.01)
        send_all(left, signal.SIGKILL)


def is_ready(data_directory: Path, pid: int) -> bool:
    """True when the postmaster `pid` says in its lock file that it accepts connections."""
    try:
        lines = (data_directory / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() in _READY


def children_of(pid: int) -> list[int]:
    """The process ids whose parent is `pid`, in no order."""
    everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [one for one in everyone if (stat := stat_of("/proc", one)) is not None and stat.parent == pid]


def send_all(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to each of several processes; one that ended meanwhile is passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
