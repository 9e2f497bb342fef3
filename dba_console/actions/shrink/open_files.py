"""Who has a file open.

The kernel itself is asked first: it grants a write lease (fcntl(2), F_SETLEASE) only on a file nobody else has open,
mapped, used as swap or bound to a loop device, whoever that is and in whatever container. /proc is read to name who it
is, and decides alone where a file system knows no leases.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator

LEASE_UNKNOWN = frozenset((errno.EINVAL, errno.EACCES, errno.ENOLCK, errno.EOPNOTSUPP, errno.EPERM))
"""The file system has no leases, or the file is another user's and we lack CAP_LEASE."""


def take_lease(fd: int) -> bool | None:
    """True: nobody else has the file open, and whoever opens it now waits until `drop_lease`, at most as long as
    /proc/sys/fs/lease-break-time says. False: somebody has. None: the kernel cannot say here. Raises OSError.
    """
    # Who opens the file is told to us by a signal, by default one that ends a process; this one is ignored by default.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno in LEASE_UNKNOWN:
            return None
        raise
    return True


def lease_break_requested(fd: int) -> bool:
    """True when somebody is waiting to open the file."""
    return fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK


def drop_lease(fd: int) -> None:
    """Let whoever waits go on. Harmless without a lease."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        pass  # there was none


def find_openers(path: str, identity: tuple[int, int], proc: str = "/proc") -> tuple[list[str], int]:
    """Processes that have the file open, in words, and how many processes could not be looked at.

    Only what bears the file's name is looked at more closely: a look at each open file of a host might hang on one of
    them. The caller's own process is left out.
    """
    name, found, closed = os.path.basename(path), [], 0
    for pid in sorted(int(entry) for entry in os.listdir(proc) if entry.isdigit()):
        if pid == os.getpid():
            continue
        try:
            if any(_is_same_file(connection, name, identity) for connection in _descriptors(f"{proc}/{pid}/fd")):
                found.append(f"{_command(proc, pid)} (process {pid})")
        except PermissionError:
            closed += 1
        except OSError:
            continue  # it has ended
    return found, closed


def _descriptors(directory: str) -> Iterator[str]:
    for number in os.listdir(directory):
        yield f"{directory}/{number}"


def _is_same_file(connection: str, name: str, identity: tuple[int, int]) -> bool:
    try:
        if os.path.basename(os.readlink(connection).removesuffix(" (deleted)")) != name:
            return False
        status = os.stat(connection)
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == identity


def _command(proc: str, pid: int) -> str:
    try:
        with open(f"{proc}/{pid}/comm", encoding="utf-8", errors="backslashreplace") as file:
            return file.read().strip()
    except OSError:
        return "?"
