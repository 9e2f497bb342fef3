"""The file that is to go, examined: what it is, and every reason not to touch it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from dba_console.actions.shrink import open_files, server_directories
from dba_console.errors import Refused
from dba_console.probes.host.kernel_files import printable, read_file
from dba_console.probes.host.mountinfo import MountEntry, mount_of_path, parse_mountinfo

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
    places = server_directories.find_server_directories(proc)
    if places.unreadable:
        raise Refused(
            f"whether {shown} belongs to a running server cannot be told: {'; '.join(places.unreadable)}",
            hint="run it as root",
        )
    if (what := server_directories.find_containing(os.path.dirname(candidate.path), places)) is not None:
        raise Refused(
            f"{shown} lies in {printable(what)}",
            hint="files of a running server are never removed by hand: DROP, TRUNCATE, or move the tablespace",
        )
    if not stopped_cluster and (what := server_directories.looks_like_server_file(candidate.path)) is not None:
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
        open_files.drop_lease(fd)
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
    alone = open_files.take_lease(fd)
    if alone:
        return
    shown = printable(candidate.current_path)
    found, closed = open_files.find_openers(candidate.current_path, candidate.identity, proc)
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
