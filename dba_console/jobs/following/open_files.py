"""Read the open files, pipes and sockets of processes from /proc, and find the processes at both ends of a pipe.

Nothing is opened: /proc/PID/fd/N is read as a link and with stat, /proc/PID/fdinfo/N has the position
(proc_pid_fdinfo(5)). Both need ptrace rights: the same user, or root. A stat of a file on a dead mount does not return.
psutil's open_files() omits deleted files and pipes, and resolves paths in our root, not in that of the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.watch.probes.host.kernel_files import list_pids, printable, read_once, read_stat

MAX_DESCRIPTORS = 4096
"""Maximum descriptors read per process; a dump has a dozen."""
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class DescriptorLink:
    """A descriptor with the target of its link."""

    fd: int
    target: str
    """`/path`, `pipe:[inode]`, `socket:[inode]`, …: from the kernel, bytes that are not UTF-8 as \\xNN."""

    @property
    def pipe(self) -> str | None:
        """Key of an unnamed pipe, the same at both ends."""
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
    """As seen by its process."""
    pos: int
    """Current offset, bytes."""
    size: int
    allocated: int
    """Bytes allocated on disk: less than its size with holes or file system compression."""
    device: int
    inode: int
    writes: bool
    reads: bool
    appends: bool
    deleted: bool
    """It was unlinked, and is freed when it is closed."""


def read_links(proc: str, pid: int, most: int = MAX_DESCRIPTORS) -> list[DescriptorLink]:
    """Return the first `most` descriptors, in order.

    Raises PermissionError without the right, ProcessLookupError if the process has ended.
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
    """Return the regular file behind a descriptor; None if it is not one, or was closed meanwhile."""
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
    """Check whether a descriptor is open for writing; None if it was closed."""
    try:
        return _read_fdinfo(proc, pid, fd)[1] & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return None


def _read_fdinfo(proc: str, pid: int, fd: int) -> tuple[int, int]:
    """Return position and flags. Raises OSError, ValueError for an unexpected format."""
    with open(f"{proc}/{pid}/fdinfo/{fd}", "rb", buffering=0) as file:
        words = file.read(512).split()
    if words[:1] != [b"pos:"] or words[2:3] != [b"flags:"]:
        raise ValueError("no position in fdinfo")
    return int(words[1]), int(words[3], 8)


def _may_be_file(link: DescriptorLink) -> bool:
    """Check by path whether it may be a file: devices are skipped, but not /dev/shm."""
    return link.target.startswith("/") and (not link.target.startswith("/dev/") or link.target.startswith("/dev/shm/"))


def pipe_key(proc: str, pid: int, link: DescriptorLink) -> str | None:
    """Return the key of a pipe or FIFO, the same at both ends; None if it is not a pipe."""
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
    """Check whether a descriptor may be the pipe with that key, without accessing its target.

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
    """Return the last part of its path, the same at both ends of a FIFO."""
    return link.target.removesuffix(_DELETED).rpartition("/")[2]


# Find the processes at the other end of a pipe: first among the relatives of a process, then among all.
#
# The kernel does not report the other end, so descriptors of other processes are read: those of relatives immediately,
# those of all processes from the second scan on. Results are stored; failed searches are repeated less and less often.

RETRY_SCANS = 8
"""Scans before a failed search is repeated, doubled each time up to eight times this value."""
MAX_RELATIVES = 200
"""Maximum relatives checked: a pipeline has a handful."""
_GENERATIONS = 3


class PipeEnds:
    """Finds the processes at the other ends of pipes. Not thread-safe."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._found: dict[tuple[str, bool], tuple[int, ...]] = {}
        self._missed: dict[tuple[str, bool], tuple[int, int]] = {}
        """Scan of the next search among all processes, and the scans to wait after it."""
        self._scan = 0

    def start_scan(self) -> None:
        """Start a new scan."""
        self._scan += 1

    def find_holders(self, key: str, *, writing: bool, owner: int) -> tuple[int, ...] | None:
        """Return the processes that have the pipe open for writing, or for reading; empty if none is visible, None if
        not all processes were searched yet. `owner`: the process whose pipe it is.

        The first scan checks only relatives: scripts may run a small `echo … | psql` every second.
        """
        name = (key, writing)
        known = tuple(pid for pid in self._found.get(name, ()) if self._holds(pid, key, writing))
        if not known:
            known = tuple(pid for pid in relatives(self._proc, owner) if self._holds(pid, key, writing))
        if known:
            self._found[name] = known
            self._missed.pop(name, None)
            return known
        self._found.pop(name, None)
        due, wait = self._missed.setdefault(name, (self._scan + 1, 0))
        if self._scan >= due:
            known = self._search_all(key, writing, owner)
            wait = min(max(wait * 2, RETRY_SCANS), RETRY_SCANS * 8)
            self._missed[name] = self._scan + wait, wait
            if known:
                self._found[name] = known
        return known if known or wait else None

    def keep_only(self, keys: set[str]) -> None:
        """Forget all other pipes."""
        for known in (self._found, self._missed):
            for name in [name for name in known if name[0] not in keys]:
                del known[name]

    def _search_all(self, key: str, writing: bool, near: int) -> tuple[int, ...]:
        return tuple(pid for pid in list_pids(self._proc) if pid != near and self._holds(pid, key, writing))

    def _holds(self, pid: int, key: str, writing: bool) -> bool:
        return any(
            pipe_key(self._proc, pid, link) == key and is_writable(self._proc, pid, link.fd) is writing
            for link in self._candidate_links(pid, key)
        )

    def _candidate_links(self, pid: int, key: str) -> Iterator[DescriptorLink]:
        """Yield descriptors that may be that pipe, judged only by their links: stat on files of other processes may
        hang with a dead mount that is unrelated to this job."""
        try:
            links = read_links(self._proc, pid)
        except OSError:
            return
        yield from (link for link in links if may_be_pipe(link, key))


def relatives(proc: str, pid: int) -> list[int]:
    """Return parent, siblings, and the descendants of both and of the process, some generations deep."""
    stat = read_stat(proc, pid)
    found = dict.fromkeys(_children(proc, pid))
    if stat is not None and stat.parent > 1:
        found |= dict.fromkeys((stat.parent, *_children(proc, stat.parent)))
    newest = list(found)
    for _ in range(_GENERATIONS):
        newest = [child for one in newest[:MAX_RELATIVES] for child in _children(proc, one) if child not in found]
        found |= dict.fromkeys(newest[:MAX_RELATIVES])
    return [one for one in found if one != pid][: 2 * MAX_RELATIVES]


def _children(proc: str, pid: int) -> list[int]:
    """Return the children of its first thread; a process that starts a pipeline has only one. Empty without the file
    (kernels without CONFIG_PROC_CHILDREN): then the search among all processes finds them."""
    try:
        return [int(word) for word in read_once(f"{proc}/{pid}/task/{pid}/children", 8192).split()]
    except (OSError, ValueError):
        return []
