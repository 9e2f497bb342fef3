"""Check whether `shrink-file` may delete a file: kind, size, mount, the server it belongs to, who has it open."""

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
from dba_console.watch.probes.host.file_systems import MountEntry, mount_of_path, read_mounts
from dba_console.watch.probes.host.kernel_files import list_pids, printable, process_text, read_stat
from dba_console.watch.probes.host.postmasters import Postmaster, find_postmasters

# Directories of servers, whose files are never touched.
#
# Directories are compared by device and inode, not by name: a bind mount, a link or a container shows the same
# directory under another path. Everything here accesses file systems, so it is called in a lane.

FileIdentity = tuple[int, int]
"""st_dev, st_ino."""

_TABLESPACE = re.compile(r"PG_\d+(\.\d+)?_\d{9}")
"""Directory of one server version in a tablespace (TABLESPACE_VERSION_DIRECTORY)."""
_WAL = re.compile(r"[0-9A-F]{24}(\.partial)?")


@dataclass(frozen=True, slots=True)
class ServerDirectories:
    """The directories of the servers that run on this host."""

    known: dict[FileIdentity, str]
    """Directory -> description."""
    unreadable: tuple[str, ...] = ()
    """Descriptions of servers whose directories could not be read: then no file is known to be outside of them."""


def find_server_directories(proc: str = "/proc") -> ServerDirectories:
    """Return data directories, WAL directories and tablespaces of every server that runs on this host."""
    known: dict[FileIdentity, str] = {}
    unseen = []
    for postmaster in find_postmasters(proc):
        try:
            known.update(_directories_of(postmaster, proc))
        except OSError as error:
            now = read_stat(proc, postmaster.pid)
            if now is None or now.start_ticks != postmaster.start_ticks:
                continue  # it ended meanwhile
            unseen.append(f"the server of process {postmaster.pid} ({error.strerror})")
    return ServerDirectories(known, tuple(unseen))


def _directories_of(postmaster: Postmaster, proc: str) -> Iterator[tuple[FileIdentity, str]]:
    """Return the directories of a server. Raises OSError if one cannot be read; a missing one is skipped."""
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
        return []  # initdb is running, or the directory of the server was removed


def _resolve_link(cwd: str, name: str, root: str) -> str:
    """Resolve a link in the data directory as the server sees it: its root may differ from ours."""
    link = f"{cwd}/{name}"
    try:
        target = os.readlink(link)
    except OSError:
        return link
    return root + target if target.startswith("/") else f"{os.path.dirname(link)}/{target}"


def _identity(path: str) -> FileIdentity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def find_containing(path: str, places: ServerDirectories) -> str | None:
    """Return what a directory at or above `path` is to a running server; None: nothing. Raises OSError."""
    for directory in _with_parents(path):
        if (what := places.known.get(_identity(directory))) is not None:
            return what
    return None


def looks_like_server_file(path: str) -> str | None:
    """Return which server, running or not, the file `path` seems to belong to; None: none."""
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


# Which processes have the file open.
#
# The kernel grants a write lease (fcntl(2), F_SETLEASE) only on a file that is not open elsewhere, mapped, used as swap
# or bound to a loop device, in any container. /proc is read to name the processes, and decides alone if the file system
# has no leases.

LEASE_UNKNOWN = frozenset((errno.EINVAL, errno.EACCES, errno.ENOLCK, errno.EOPNOTSUPP, errno.EPERM))
"""The file system has no leases, or the file belongs to another user and we lack CAP_LEASE."""


def take_lease(fd: int) -> bool | None:
    """True: no other process has the file open, and one that opens it now waits until `drop_lease`, at most
    /proc/sys/fs/lease-break-time seconds. False: it is open elsewhere. None: unknown here. Raises OSError.
    """
    # The kernel signals an open by another process; the default signal ends the process, SIGURG is ignored by default.
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
    """Whether a process is waiting to open the file."""
    return fcntl.fcntl(fd, fcntl.F_GETLEASE) != fcntl.F_WRLCK


def drop_lease(fd: int) -> None:
    """Release the lease, so that waiting processes continue. Harmless without a lease."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        pass  # no lease was taken


def find_openers(path: str, identity: tuple[int, int], proc: str = "/proc") -> tuple[list[str], int]:
    """Return descriptions of the processes that have the file open, and how many processes could not be read.

    Only open files with the same name are stat'ed: stat of every open file of a host might hang. The caller's own
    process is left out.
    """
    name, found, closed = os.path.basename(path), [], 0
    for pid in sorted(list_pids(proc)):
        if pid == os.getpid():
            continue
        try:
            directory = f"{proc}/{pid}/fd"
            if any(_is_same_file(f"{directory}/{number}", name, identity) for number in os.listdir(directory)):
                found.append(process_text(proc, pid))
        except PermissionError:
            closed += 1
        except OSError:
            continue  # it has ended
    return found, closed


def _is_same_file(descriptor: str, name: str, identity: tuple[int, int]) -> bool:
    try:
        if os.path.basename(os.readlink(descriptor).removesuffix(" (deleted)")) != name:
            return False
        status = os.stat(descriptor)
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == identity


SUFFIX = ".dba-console-shrinking"
"""Added to the name before the first cut, so that a truncated backup is never taken for a complete one."""

NETWORK_FILE_SYSTEMS = frozenset((
    "9p", "afs", "ceph", "cifs", "fuse", "fuseblk", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs",
    "smb3", "virtiofs",
))  # fmt: skip
"""File systems shared with other hosts: whether one of them has the file open is unknown here."""


@dataclass(frozen=True, slots=True)
class ShrinkCandidate:
    """A regular file with one name that belongs to no server and is not open."""

    path: str
    """Path with links resolved, without the suffix."""
    renamed: bool
    """It already has the suffix: an earlier deletion was interrupted."""
    device: int
    inode: int
    size: int
    allocated: int
    """Bytes allocated on disk; fewer than `size` if it is sparse."""
    changed_ns: int
    mount: MountEntry | None

    @property
    def trash_path(self) -> str:
        return self.path + SUFFIX

    @property
    def current_path(self) -> str:
        """The path it has now."""
        return self.trash_path if self.renamed else self.path

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


def examine(named: str, *, stopped_cluster: bool = False, proc: str = "/proc") -> ShrinkCandidate:
    """Return the file, also one that an earlier deletion has renamed. Raises Refused with the reason.

    `stopped_cluster`: the operator states that the server of its directory was removed from service.
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
        raise Refused(f"{printable(named)!r} is not an absolute path", hint="use a path that starts with /")
    if os.path.basename(named.rstrip("/")).endswith(SUFFIX):
        named = named[: -len(SUFFIX)]
    path = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
    try:
        status, aside = os.lstat(path), False
        if os.path.lexists(path + SUFFIX):
            raise Refused(
                f"both {printable(path)} and {printable(path + SUFFIX)} exist: the second is left from an earlier "
                "deletion",
                hint="move one of them away first",
            )
    except FileNotFoundError:
        status, aside = _stat_trash(path), True
    _refuse_kind(path, status)
    return ShrinkCandidate(
        path, aside, status.st_dev, status.st_ino, status.st_size, status.st_blocks * 512, status.st_mtime_ns,
        mount_of_path(read_mounts(proc), path),
    )  # fmt: skip


def _stat_trash(path: str) -> os.stat_result:
    try:
        return os.lstat(path + SUFFIX)
    except FileNotFoundError:
        raise Refused(f"file {printable(path)} does not exist") from None


def _refuse_kind(path: str, status: os.stat_result) -> None:
    shown = printable(path)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(f"{shown} is a symbolic link", hint=f"name the file itself: {printable(os.path.realpath(path))}")
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{shown} is not a regular file", hint="name one file; a directory is emptied file by file")
    if status.st_nlink > 1:
        raise Refused(
            f"{shown} has {status.st_nlink} names (hard links): truncating it would destroy the others too",
            hint="rm of one name frees no space and is harmless; shrink the last one",
        )
    if os.geteuid() not in (0, status.st_uid):
        raise Refused(f"{shown} belongs to uid {status.st_uid}, not to you", hint="run it as root or as its owner")


def _refuse_server_files(candidate: ShrinkCandidate, stopped_cluster: bool, proc: str) -> None:
    shown = printable(candidate.path)
    places = find_server_directories(proc)
    if places.unreadable:
        raise Refused(
            f"whether {shown} belongs to a running server is unknown: {'; '.join(places.unreadable)}",
            hint="run it as root",
        )
    if (what := find_containing(os.path.dirname(candidate.path), places)) is not None:
        raise Refused(
            f"{shown} is in {printable(what)}",
            hint="never remove files of a running server: DROP, TRUNCATE, or move the tablespace",
        )
    if not stopped_cluster and (what := looks_like_server_file(candidate.path)) is not None:
        raise Refused(
            f"{shown} is in {printable(what)}",
            hint="if that server was removed from service, set stopped_cluster = true",
        )
    mount = candidate.mount
    if mount is not None and (mount.fstype in NETWORK_FILE_SYSTEMS or mount.fstype.startswith("fuse.")):
        raise Refused(
            f"{shown} is on {mount.fstype}: whether another host has it open is unknown here",
            hint="remove it on the host that exports it",
        )


def _refuse_open(candidate: ShrinkCandidate, proc: str) -> None:
    fd = open_file(candidate)
    try:
        refuse_others(fd, candidate, proc)
    finally:
        drop_lease(fd)
        os.close(fd)


def open_file(candidate: ShrinkCandidate) -> int:
    """Return a descriptor of this file. Raises Refused if another one has its name now, OSError."""
    fd = os.open(candidate.current_path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(fd)
    same = (status.st_dev, status.st_ino, status.st_size, status.st_nlink) == (*candidate.identity, candidate.size, 1)
    if not same:
        os.close(fd)
        raise Refused(f"{printable(candidate.current_path)} changed while it was examined")
    return fd


def refuse_others(fd: int, candidate: ShrinkCandidate, proc: str) -> None:
    """Raise Refused if another process has the file open, or that is unknown. Takes the lease."""
    alone = take_lease(fd)
    if alone:
        return
    shown = printable(candidate.current_path)
    found, closed = find_openers(candidate.current_path, candidate.identity, proc)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise Refused(f"{shown} is open in {', '.join(found[:3])}{more}", hint="wait until that has ended")
    if alone is False:
        raise Refused(
            f"{shown} is in use: the kernel reports that it is open, but no process that has it open was found",
            hint="a container, a loop device (losetup -a) or swap (swapon --show) may be using it",
        )
    if closed:
        raise Refused(f"whether {shown} is open in {closed} processes of others is unknown", hint="run it as root")
