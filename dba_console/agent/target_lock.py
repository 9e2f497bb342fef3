"""One agent per target: a lock held for the agent's lifetime, released by the kernel however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from dba_console.core import paths
from dba_console.core.errors import ConfigError

ATTEMPTS = 5
PAUSE_S = 0.01
"""Pause between attempts: a reader of the holder has the lock for some microseconds."""


def acknowledgements_path(key: str) -> Path:
    """Return the file of acknowledgements and silences of that target."""
    return socket_path(key).with_suffix(".said")


def socket_path(key: str) -> Path:
    """Return the agent's socket of a target. Raises ConfigError if the path is too long for a socket."""
    path = paths.runtime_dir() / f"{key}.sock"
    if len(os.fsencode(path)) > paths.SOCKET_PATH_LIMIT:
        raise ConfigError(
            f"the socket path {path} is longer than {paths.SOCKET_PATH_LIMIT} bytes",
            hint="set DBA_CONSOLE_RUNTIME to a shorter directory",
        )
    return path


class TargetLock:
    """The lock of a target. `acquire` returns False while another agent holds it; `holder` returns its pid."""

    def __init__(self, key: str) -> None:
        self.path = paths.private_dir(paths.runtime_dir()) / f"{key}.lock"
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if not _try_lock(descriptor):
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        # The file stays: if it were removed, two agents could lock two files of one name.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> int | None:
        """Return the pid of the agent that holds the lock, None if none does."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(descriptor, 32).strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(descriptor)
        return None


def _try_lock(descriptor: int) -> bool:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False
