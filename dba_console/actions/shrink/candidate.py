"""The file that is to go, examined: what it is, and every reason not to touch it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.core.errors import Refused
from dba_console.watch.probes.host.file_systems import MountEntry, mount_of_path, parse_mountinfo
from dba_console.watch.probes.host.kernel_files import printable, read_file, read_stat
from dba_console.watch.probes.host.postmasters import Postmaster, find_postmasters

# Which directories belong to servers, so that nothing in them is ever touched.
#
# Directories are compared by device and inode, not by name: a bind mount, a link or a container shows the same
# directory under another path. Everything here touches file systems, so it is called in a lane.

FileIdentity = tuple[int, int]
"""st_dev, st_ino."""

_TABLESPACE = re.compile(r"PG_\d+(\.\d+)?_\d{9}")
"""Directory of one server version in a tablespace (TABLESPACE_VERSION_DIRECTORY)."""
_WAL = re.compile(r"[0-9A-F]{24}(\.partial)?")


@dataclass(frozen=True, slots=True)
class ServerDirectories:
    """The directories of the servers that run here."""

    known: dict[FileIdentity, str]
    """Directory -> what it is, in words."""
    unreadable: tuple[str, ...] = ()
    """Servers whose directories could not be seen, in words: then nothing may be said to be outside of them."""


def find_server_directories(proc: str = "/proc") -> ServerDirectories:
    """Data directories, WAL directories and tablespaces of every server that runs on this host."""
    known: dict[FileIdentity, str] = {}
    unseen = []
    for postmaster in find_postmasters(proc):
        try:
            known.update(_directories_of(postmaster, proc))
        except OSError as error:
            now = read_stat(proc, postmaster.pid)
            if now is None or now.start_ticks != postmaster.start_ticks:
                continue  # it ended while it was looked at
            unseen.append(f"the server of process {postmaster.pid} ({error.strerror})")
    return ServerDirectories(known, tuple(unseen))


def _directories_of(postmaster: Postmaster, proc: str) -> Iterator[tuple[FileIdentity, str]]:
    """Raises OSError where it cannot all be seen. A directory that has gone meanwhile is not there to be hurt."""
    cwd, root = f"{proc}/{postmaster.pid}/cwd", f"{proc}/{postmaster.pid}/root"
    try:
        os.stat(f"{cwd}/PG_VERSION")
    except FileNotFoundError:
        return  # the process is starting and has not entered its data directory yet, or only prints its version
    whose = f"of the server of process {postmaster.pid}"
    named = postmaster.data_directory or cwd
    yield _identity(cwd), f"the data directory {whose}, {named}"
    for name in ("pg_wal", "pg_xlog", "log", "pg_log"):
        try:
            yield _identity(_resolve_link(cwd, name, root)), f"{name} {whose}"
        except FileNotFoundError:
            continue
    for name in _tablespaces(cwd):
        try:
            yield _identity(_resolve_link(cwd, f"pg_tblspc/{name}", root)), f"the tablespace {name} {whose}"
        except FileNotFoundError:
            continue


def _tablespaces(cwd: str) -> list[str]:
    try:
        return os.listdir(f"{cwd}/pg_tblspc")
    except FileNotFoundError:
        return []  # initdb at work, or a server whose directory was removed under it


def _resolve_link(cwd: str, name: str, root: str) -> str:
    """Where a link in the data directory leads, as the server itself sees it: its root may not be ours."""
    place = f"{cwd}/{name}"
    try:
        target = os.readlink(place)
    except OSError:
        return place
    return root + target if target.startswith("/") else f"{os.path.dirname(place)}/{target}"


def _identity(path: str) -> FileIdentity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def find_containing(path: str, places: ServerDirectories) -> str | None:
    """What a directory at or above `path` is to a running server; None where it is nothing. Raises OSError."""
    for directory in _with_parents(path):
        if (what := places.known.get(_identity(directory))) is not None:
            return what
    return None


def looks_like_server_file(path: str) -> str | None:
    """What `path` seems to be a part of, running or not; None where nothing looks like it. `path` is a file's."""
    for directory in _with_parents(os.path.dirname(path)):
        if os.path.exists(f"{directory}/PG_VERSION") and os.path.exists(f"{directory}/global/pg_control"):
            return f"the data directory {directory}, whose server does not run here"
        if _TABLESPACE.fullmatch(os.path.basename(directory)):
            return f"the tablespace {os.path.dirname(directory)}"
    parent = os.path.dirname(path)
    if _WAL.fullmatch(os.path.basename(path)) and os.path.isdir(f"{parent}/archive_status"):
        return f"the WAL directory {parent}"
    return None


def _with_parents(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


# Who has a file open.
#
# The kernel itself is asked first: it grants a write lease (fcntl(2), F_SETLEASE) only on a file nobody else has open,
# mapped, used as swap or bound to a loop device, whoever that is and in whatever container. /proc is read to name who
# it is, and decides alone where a file system knows no leases.

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


SUFFIX = ".dba-console-shrinking"
"""Put behind the name before the first cut, so that half a backup is never mistaken for one."""

NETWORK_FILE_SYSTEMS = frozenset((
    "9p", "afs", "ceph", "cifs", "fuse", "fuseblk", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs",
    "smb3", "virtiofs",
))  # fmt: skip
"""File systems other hosts use too: whether one of them has the file open cannot be told from here."""


@dataclass(frozen=True, slots=True)
class ShrinkCandidate:
    """A regular file with one name, nobody's but a backup's."""

    path: str
    """Without links; the name it had before it was set aside."""
    renamed: bool
    """It bears the suffix already: an earlier deletion was begun."""
    device: int
    inode: int
    size: int
    allocated: int
    """Bytes it takes on the disk; fewer than `size` where it has holes."""
    changed_ns: int
    mount: MountEntry | None

    @property
    def trash_path(self) -> str:
        return self.path + SUFFIX

    @property
    def current_path(self) -> str:
        """Where it lies now."""
        return self.trash_path if self.renamed else self.path

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


def examine(named: str, *, stopped_cluster: bool = False, proc: str = "/proc") -> ShrinkCandidate:
    """The file of that name, or what an earlier deletion has left of it. Raises Refused with the reason.

    `stopped_cluster`: the operator says that the server whose directory it lies in is gone for good.
    """
    try:
        candidate = _find_candidate(named, proc)
        _refuse_server_files(candidate, stopped_cluster, proc)
        _refuse_open(candidate, proc)
    except OSError as error:
        raise Refused(
            f"{printable(named)} cannot be examined: {error.strerror}", hint="run it as root or as the file's owner"
        ) from error
    return candidate


def _find_candidate(named: str, proc: str) -> ShrinkCandidate:
    if not named.startswith("/"):
        raise Refused(f"{printable(named)!r} is not an absolute path", hint="name the file from / on")
    if os.path.basename(named.rstrip("/")).endswith(SUFFIX):
        named = named[: -len(SUFFIX)]
    path = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
    try:
        status, aside = os.lstat(path), False
        if os.path.lexists(path + SUFFIX):
            raise Refused(
                f"both {printable(path)} and {printable(path + SUFFIX)} are there: the second is left of an earlier "
                "deletion",
                hint="move one of them away first",
            )
    except FileNotFoundError:
        status, aside = _stat_trash(path), True
    _refuse_kind(path, status)
    entries = parse_mountinfo(read_file(f"{proc}/self/mountinfo"))
    return ShrinkCandidate(
        path, aside, status.st_dev, status.st_ino, status.st_size, status.st_blocks * 512, status.st_mtime_ns,
        mount_of_path(entries, path),
    )  # fmt: skip


def _stat_trash(path: str) -> os.stat_result:
    try:
        return os.lstat(path + SUFFIX)
    except FileNotFoundError:
        raise Refused(f"there is no file {printable(path)}") from None


def _refuse_kind(path: str, status: os.stat_result) -> None:
    shown = printable(path)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(f"{shown} is a symbolic link", hint=f"name the file itself: {printable(os.path.realpath(path))}")
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{shown} is not a regular file", hint="name one file; a directory is emptied file by file")
    if status.st_nlink > 1:
        raise Refused(
            f"{shown} has {status.st_nlink} names (hard links): cutting it would destroy what the others are kept for",
            hint="rm of one name frees nothing and costs nothing; shrink the last one",
        )
    if os.geteuid() not in (0, status.st_uid):
        raise Refused(f"{shown} belongs to uid {status.st_uid}, not to you", hint="run it as root or as its owner")


def _refuse_server_files(candidate: ShrinkCandidate, stopped_cluster: bool, proc: str) -> None:
    shown = printable(candidate.path)
    places = find_server_directories(proc)
    if places.unreadable:
        raise Refused(
            f"whether {shown} belongs to a running server cannot be told: {'; '.join(places.unreadable)}",
            hint="run it as root",
        )
    if (what := find_containing(os.path.dirname(candidate.path), places)) is not None:
        raise Refused(
            f"{shown} lies in {printable(what)}",
            hint="files of a running server are never removed by hand: DROP, TRUNCATE, or move the tablespace",
        )
    if not stopped_cluster and (what := looks_like_server_file(candidate.path)) is not None:
        raise Refused(
            f"{shown} lies in {printable(what)}",
            hint="where that is gone for good, say so with stopped_cluster = true",
        )
    mount = candidate.mount
    if mount is not None and (mount.fstype in NETWORK_FILE_SYSTEMS or mount.fstype.startswith("fuse.")):
        raise Refused(
            f"{shown} lies on {mount.fstype}: whether another host has it open cannot be told here",
            hint="remove it on the host that serves it",
        )


def _refuse_open(candidate: ShrinkCandidate, proc: str) -> None:
    fd = open_file(candidate)
    try:
        refuse_others(fd, candidate, proc)
    finally:
        drop_lease(fd)
        os.close(fd)


def open_file(candidate: ShrinkCandidate) -> int:
    """A descriptor of this very file. Raises Refused where another one bears its name now, or OSError."""
    fd = os.open(candidate.current_path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    same = (status.st_dev, status.st_ino, status.st_size, status.st_nlink) == (*candidate.identity, candidate.size, 1)
    if not same:
        os.close(fd)
        raise Refused(f"{printable(candidate.current_path)} has changed while it was looked at")
    return fd


def refuse_others(fd: int, candidate: ShrinkCandidate, proc: str) -> None:
    """Raises Refused where anybody else has the file open, or where that cannot be told. Takes the lease."""
    alone = take_lease(fd)
    if alone:
        return
    shown = printable(candidate.current_path)
    found, closed = find_openers(candidate.current_path, candidate.identity, proc)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise Refused(f"{shown} is open in {', '.join(found[:3])}{more}", hint="let that end first")
    if alone is False:
        raise Refused(
            f"{shown} is in use: the kernel says somebody has it open, and no process could be found that does",
            hint="a container, a loop device (losetup -a) or swap (swapon --show) may be using it",
        )
    if closed:
        raise Refused(f"whether {shown} is open in {closed} processes of others cannot be told", hint="run it as root")
