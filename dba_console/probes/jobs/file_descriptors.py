"""What a process has open, as its descriptors tell: which file at which place, which pipe, which socket.

Nothing is opened: /proc/PID/fd/N is a link to read and to stat, /proc/PID/fdinfo/N has the place (proc_pid_fdinfo(5)).
Both need the rights of a debugger: the same user, or root. A stat of a file on a dead mount does not come back.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from dba_console.probes.host.kernel_files import printable

MAX_DESCRIPTORS = 4096
"""Of one process that are looked at; a dump has a dozen."""
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class DescriptorLink:
    """One descriptor as its link names it."""

    fd: int
    target: str
    """`/path`, `pipe:[inode]`, `socket:[inode]`, …: as the kernel writes it, bytes that are no UTF-8 as \\xNN."""

    @property
    def pipe(self) -> str | None:
        """What both ends of an unnamed pipe have in common."""
        return self.target if self.target.startswith("pipe:[") else None

    @property
    def socket(self) -> int | None:
        """Inode of a socket."""
        return int(self.target[8:-1]) if self.target.startswith("socket:[") else None


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file a process has open."""

    pid: int
    fd: int
    path: str
    """As its process sees it."""
    pos: int
    """Where it reads or writes next, bytes."""
    size: int
    allocated: int
    """Bytes it takes on its disk: less than its size where it has holes or is compressed below."""
    device: int
    inode: int
    writes: bool
    reads: bool
    appends: bool
    deleted: bool
    """It has no name any more, and goes when it is closed."""


def read_links(proc: str, pid: int, most: int = MAX_DESCRIPTORS) -> list[DescriptorLink]:
    """The first `most` descriptors in their order.

    Raises PermissionError without the right, ProcessLookupError where the process has ended.
    """
    base = f"{proc}/{pid}/fd"
    try:
        numbers = sorted(map(int, os.listdir(base)))[:most]
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    found = []
    for fd in numbers:
        try:
            found.append(DescriptorLink(fd, printable(os.readlink(f"{base}/{fd}"))))
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


def read_open_file(proc: str, pid: int, link: DescriptorLink) -> OpenFile | None:
    """A regular file behind a descriptor, None where it is none, or closed meanwhile."""
    if not _may_be_file(link):
        return None
    try:
        at = os.stat(f"{proc}/{pid}/fd/{link.fd}")
        if not stat.S_ISREG(at.st_mode):
            return None
        pos, flags = _read_fdinfo(proc, pid, link.fd)
    except (OSError, ValueError):
        return None
    mode = flags & os.O_ACCMODE
    return OpenFile(
        pid, link.fd, link.target.removesuffix(_DELETED), pos, at.st_size, at.st_blocks * 512, at.st_dev, at.st_ino,
        writes=mode in (os.O_WRONLY, os.O_RDWR), reads=mode in (os.O_RDONLY, os.O_RDWR),
        appends=bool(flags & os.O_APPEND), deleted=at.st_nlink == 0,
    )  # fmt: skip


def is_writable(proc: str, pid: int, fd: int) -> bool | None:
    """Whether a descriptor is open for writing; None where it is gone."""
    try:
        return _read_fdinfo(proc, pid, fd)[1] & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return None


def _read_fdinfo(proc: str, pid: int, fd: int) -> tuple[int, int]:
    """Position and flags. Raises OSError, ValueError on what is no fdinfo."""
    with open(f"{proc}/{pid}/fdinfo/{fd}", "rb", buffering=0) as file:
        words = file.read(512).split()
    if words[:1] != [b"pos:"] or words[2:3] != [b"flags:"]:
        raise ValueError("no place in fdinfo")
    return int(words[1]), int(words[3], 8)


def _may_be_file(link: DescriptorLink) -> bool:
    """Whether it may be a file: a device is not looked at, but /dev/shm is a place like others."""
    return link.target.startswith("/") and (not link.target.startswith("/dev/") or link.target.startswith("/dev/shm/"))


def pipe_key(proc: str, pid: int, link: DescriptorLink) -> str | None:
    """What the two ends of a pipe have in common, also of one with a name; None for what is no pipe."""
    if link.pipe is not None:
        return link.pipe
    if not _may_be_file(link):
        return None
    try:
        at = os.stat(f"{proc}/{pid}/fd/{link.fd}")
    except OSError:
        return None
    return f"fifo:{at.st_dev}:{at.st_ino}:{_base_name(link)}" if stat.S_ISFIFO(at.st_mode) else None


def may_be_pipe(link: DescriptorLink, key: str) -> bool:
    """Whether a descriptor may be the pipe of that key, told without touching what it leads to.

    >>> (may_be_pipe(DescriptorLink(3, "/mnt/dead/file"), "fifo:1:2:all.sql"),
    ...  may_be_pipe(DescriptorLink(3, "/tmp/all.sql"), "pipe:[7]"))
    (False, False)
    >>> (may_be_pipe(DescriptorLink(3, "/tmp/all.sql"), "fifo:1:2:all.sql"),
    ...  may_be_pipe(DescriptorLink(0, "pipe:[7]"), "pipe:[7]"))
    (True, True)
    """
    if not key.startswith("fifo:"):
        return link.target == key
    return _may_be_file(link) and key.split(":", 3)[3] == _base_name(link)


def _base_name(link: DescriptorLink) -> str:
    """The last part of its path: the same at both ends, which share one name in the kernel."""
    return link.target.removesuffix(_DELETED).rpartition("/")[2]
