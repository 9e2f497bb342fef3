"""The file under a run's journal: a line is on the disk when `append` returns, or it is not there at all."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.errors import SessionError
from dba_console.keeping.atomic_files import write_all
from dba_console.session.run_paths import LOCK, RESERVE

RESERVE_BYTES = 64 << 10
"""Given back when the disk is full: a few hundred records, enough to end a run in order."""
FULL = (errno.ENOSPC, errno.EDQUOT)

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class JournalFile:
    """Append-only. Every call may wait for the disk as long as the disk likes."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = size
        """Bytes that are known to be whole lines on the disk."""
        self._spoiled = False

    @classmethod
    def create(cls, path: Path, data: bytes) -> JournalFile:
        """A file with these lines, durable under its name. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | _FLAGS, 0o600)
        made = cls(path, descriptor, 0)
        try:
            made.append(data)
        except OSError:
            made.close()
            raise
        return made

    @classmethod
    def open(cls, path: Path) -> JournalFile:
        """The file as it is, to go on behind its last byte. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
        return cls(path, descriptor, os.fstat(descriptor).st_size)

    def append(self, data: bytes) -> None:
        """Write and sync. Raises OSError, having taken back what was written of it."""
        if self._spoiled:
            self._take_back()
        self._spoiled = True
        try:
            if (written := os.write(self._descriptor, data)) < len(data):
                # A short write is what a disk does that has just become full; the next one says so.
                os.write(self._descriptor, data[written:])
            os.fdatasync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            if size != self._size + len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._take_back()
            raise
        self._size += len(data)
        self._spoiled = False

    def whole(self) -> bool:
        """Whether it ends with a line's end. Raises OSError."""
        return self._size == 0 or os.pread(self._descriptor, 1, self._size - 1) == b"\n"

    def _take_back(self) -> None:
        """Cut off half a line. Raises OSError where even that does not work: then nothing more is written."""
        os.ftruncate(self._descriptor, self._size)
        self._spoiled = False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def lock_run(directory: Path) -> int:
    """Hold the run: a descriptor whose lock the kernel lets go of when its holder dies.

    Raises SessionError where another holds it, OSError.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise SessionError(
            f"another agent has the run {directory.name} open", hint="`dba-console attach` shows it"
        ) from None
    return descriptor


@contextmanager
def holding_run(directory: Path) -> Iterator[int]:
    """The lock, let go of where what is done under it fails; else the caller's. Raises as `lock_run`."""
    lock = lock_run(directory)
    try:
        yield lock
    except BaseException:
        unlock_run(lock)
        raise


def unlock_run(lock: int) -> None:
    """Let go of a run."""
    try:
        os.close(lock)
    except OSError:
        pass  # the kernel has let go of it all the same


def write_durably(path: Path, data: bytes) -> None:
    """A file of its own, 0600, whole or not there. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def hold_reserve(directory: Path) -> bool:
    """Take RESERVE_BYTES of the disk for the end of the run. False where the disk does not give them."""
    path = directory / RESERVE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    except OSError:
        return False
    try:
        os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
    except OSError:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)
    return True


def give_reserve(directory: Path) -> bool:
    """Give the reserve back. False where there was none."""
    try:
        (directory / RESERVE).unlink()
    except OSError:
        return False
    return True
