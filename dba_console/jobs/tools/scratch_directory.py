"""The directory a trial dump is written to: its own, known as such, and gone afterwards whatever became of the trial.

What a killed one leaves is removed by the next start in the same place: the name tells whose it is, and a process that
runs no more needs nothing. "Nowhere" is memory (tmpfs), where the data of each file are let go again as pg_dump writes
them: pg_dump does all it does, and only its last step, the disk, is left out.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.watch.probes.host.file_systems import MountEntry, mount_of_path, parse_mountinfo
from dba_console.watch.probes.host.kernel_files import read_file, read_stat

NAME = re.compile(r"\.dba-console-sweep-(\d+)-(\d+)-([0-9a-f]{8})")
"""Process and its start, in ticks since boot, for a process id alone is given to others again; and on which host: the
place may be one that several share."""
MEMORY_DIRECTORIES = ("/dev/shm", "/run", "/tmp")
"""Where memory is usually mounted as a file system."""
MEMORY_MIN_FREE = 256 << 20
"""Bytes free there, so that several jobs can write between two looks."""
MIN_FREE_SHARE = 0.05
"""Of a file system that is written to: a dump ends before it fills a disk others use."""
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
"""fallocate(2): the blocks go, the size stays."""
_KEPT_SUFFIXES = ("toc.dat", ".toc")
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", None) or _libc.fallocate


class FreeSpace(NamedTuple):
    """What a file system has, bytes."""

    free: int
    size: int


def free_space(path: str | Path) -> FreeSpace:
    """Raises OSError."""
    found = os.statvfs(path)
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def mount_of(path: str | Path) -> MountEntry | None:
    """The file system a place lies on; None where the kernel does not say."""
    try:
        return mount_of_path(parse_mountinfo(read_file("/proc/self/mountinfo")), os.path.realpath(path))
    except OSError:
        return None


def memory_directory() -> Path:
    """A directory in memory with room enough. Raises ConsoleError where there is none."""
    too_small = []
    for place in MEMORY_DIRECTORIES:
        mount = mount_of(place)
        if mount is None or mount.fstype != "tmpfs" or not os.access(place, os.W_OK | os.X_OK):
            continue
        free = free_space(place).free
        if free >= MEMORY_MIN_FREE:
            return Path(place)
        too_small.append(f"{place} has {free >> 20} MB")
    details = f" ({', '.join(too_small)})" if too_small else ""
    raise ConsoleError(
        f"there is no directory in memory with {MEMORY_MIN_FREE >> 20} MB free{details}",
        hint="name a scratch directory: --to DIR",
    )


@contextmanager
def scratch_directory(place: Path) -> Iterator[Path]:
    """An empty directory in `place`, removed at the end. Raises UsageError where none can be made."""
    remove_leftovers(place)
    own = read_stat("/proc", os.getpid())
    path = place / directory_name(os.getpid(), own.start_ticks if own else 0)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise UsageError(f"cannot make a directory in {place}: {error.strerror}") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def directory_name(process: int, start_ticks: int) -> str:
    """What the directory of a process of this host is called."""
    return f".dba-console-sweep-{process}-{start_ticks}-{_host_hash()}"


def _host_hash() -> str:
    return hashlib.sha256(os.fsencode(os.uname().nodename)).hexdigest()[:8]


def remove_leftovers(place: Path) -> list[Path]:
    """Remove what killed trials of this user left in `place`; gives what was removed."""
    removed = []
    try:
        names = os.listdir(place)
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from error
    for name in names:
        match = NAME.fullmatch(name)
        path = place / name
        if match is None or match[3] != _host_hash() or path.is_symlink() or path.lstat().st_uid != os.geteuid():
            continue
        running = read_stat("/proc", int(match[1]))
        if running is None or running.start_ticks != int(match[2]):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


class TrialOutput:
    """What a dump has written into its directory; with `discard` its data are given back as they come."""

    def __init__(self, path: Path, *, discard: bool) -> None:
        self._path, self._discard = path, discard
        self.size = 0
        """Bytes written, given back or not."""
        self.allocated = 0
        """Bytes taken now."""

    def measure(self) -> None:
        """Read it anew. A file that goes meanwhile is none."""
        size = allocated = 0
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_size
                    taken = status.st_blocks * 512
                    if self._discard and taken > 65536 and not entry.name.endswith(_KEPT_SUFFIXES):
                        taken -= _punch_hole(entry.path, status.st_size)
                    allocated += taken
        except OSError:
            return
        self.size, self.allocated = size, allocated


def _punch_hole(path: str, size: int) -> int:
    """Give back the blocks of a file up to `size`; how many bytes that asked for, 0 where it was refused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        whole = size // 4096 * 4096
        nothing, length = ctypes.c_int64(0), ctypes.c_int64(whole)
        done = whole and _fallocate(descriptor, _KEEP_SIZE_PUNCH_HOLE, nothing, length) == 0
        return whole if done else 0
    finally:
        os.close(descriptor)
