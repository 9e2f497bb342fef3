"""The scratch directory of a trial dump: created with a recognizable name, always removed afterwards.

The next start in the same parent directory removes what a killed trial left: the name identifies its process, which
must no longer run. "nowhere" means memory (tmpfs), where the data of each file are discarded while pg_dump writes them:
pg_dump does all its work except writing to a disk.
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

import psutil

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.watch.probes.host.file_systems import MountEntry, mount_of_path, read_mounts
from dba_console.watch.probes.host.kernel_files import read_stat

NAME = re.compile(r"\.dba-console-sweep-(\d+)-(\d+)-([0-9a-f]{8})")
"""Process id, its start in ticks since boot (process ids are reused), and a hash of the host name (the parent directory
may be shared by several hosts)."""
MEMORY_DIRECTORIES = ("/dev/shm", "/run", "/tmp")
"""Usual mount points of tmpfs."""
MEMORY_MIN_FREE = 256 << 20
"""Free bytes required, so that several jobs can write between two discards."""
MIN_FREE_SHARE = 0.05
"""Share of a file system that must stay free: a dump stops before it fills a shared disk."""
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02
"""fallocate(2): deallocate the blocks, keep the file size."""
_KEPT_SUFFIXES = ("toc.dat", ".toc")
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = getattr(_libc, "fallocate64", None) or _libc.fallocate


class FreeSpace(NamedTuple):
    """Free space and size of a file system, bytes."""

    free: int
    size: int


def free_space(path: str | Path) -> FreeSpace:
    """Return the free space at a path. Raises OSError."""
    usage = psutil.disk_usage(str(path))
    return FreeSpace(usage.free, usage.total)


def mount_of(path: str | Path) -> MountEntry | None:
    """Return the mount that holds a path; None if unknown."""
    try:
        return mount_of_path(read_mounts("/proc"), os.path.realpath(path))
    except OSError:
        return None


def memory_directory() -> Path:
    """Return a tmpfs directory with enough free space. Raises ConsoleError if none is found."""
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
        f"no tmpfs directory with {MEMORY_MIN_FREE >> 20} MB free found{details}",
        hint="use a scratch directory: --to DIR",
    )


@contextmanager
def scratch_directory(place: Path) -> Iterator[Path]:
    """Create an empty directory in `place` and remove it at the end. Raises UsageError if it cannot be created."""
    remove_leftovers(place)
    own = read_stat("/proc", os.getpid())
    path = place / directory_name(os.getpid(), own.start_ticks if own else 0)
    try:
        os.mkdir(path, 0o700)
    except OSError as error:
        raise UsageError(f"cannot create a directory in {place}: {error.strerror}") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def directory_name(process: int, start_ticks: int) -> str:
    """Return the directory name for a process of this host."""
    return f".dba-console-sweep-{process}-{start_ticks}-{_host_hash()}"


def _host_hash() -> str:
    return hashlib.sha256(os.fsencode(os.uname().nodename)).hexdigest()[:8]


def remove_leftovers(place: Path) -> list[Path]:
    """Remove the directories that killed trials of this user left in `place`; return the removed paths."""
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
    """Measures a dump's output directory; with `discard`, frees the data as they are written."""

    def __init__(self, path: Path, *, discard: bool) -> None:
        self._path, self._discard = path, discard
        self.size = 0
        """Bytes written, discarded or not."""
        self.allocated = 0
        """Bytes allocated now."""

    def measure(self) -> None:
        """Measure the directory again; if a file disappears meanwhile, keep the last values."""
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
    """Deallocate the blocks of a file up to `size`; return the number of bytes, 0 if refused."""
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
