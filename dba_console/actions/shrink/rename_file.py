"""A file set aside under a name that says what becomes of it, and put back while nothing of it is cut."""

from __future__ import annotations

import os

from dba_console.actions.shrink.candidate import SUFFIX, ShrinkCandidate
from dba_console.errors import Refused
from dba_console.probes.host.kernel_files import printable


def rename_to_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Give it the suffix, for good on disk. Raises Refused where another file turns out to bear its name, OSError."""
    directory, name = os.path.split(candidate.path)
    _rename(directory, name, name + SUFFIX, os.fstat(fd))


def rename_back(path: str, identity: tuple[int, int], size: int) -> str | None:
    """Take the suffix away again. Returns why that may not be, None when it is done. Raises OSError."""
    trash = path + SUFFIX
    try:
        status = os.lstat(trash)
    except FileNotFoundError:
        return f"{printable(trash)} is not there any more"
    if (status.st_dev, status.st_ino) != identity:
        return f"{printable(trash)} is another file now"
    if status.st_size != size:
        return f"{printable(trash)} has been cut: {status.st_size} of its {size} bytes are left"
    if os.path.lexists(path):
        return f"there is a new {printable(path)}"
    directory, name = os.path.split(path)
    _rename(directory, name + SUFFIX, name, status)
    return None


def unlink_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Remove what is left, which is empty. Raises Refused where another file bears its name now, OSError."""
    directory, name = os.path.split(candidate.trash_path)
    opened = _open_directory(directory)
    try:
        _require_same_file(opened, name, os.fstat(fd))
        os.unlink(name, dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _rename(directory: str, old: str, new: str, expected: os.stat_result) -> None:
    opened = _open_directory(directory)
    try:
        _require_same_file(opened, old, expected)
        if _exists(opened, new):
            raise Refused(f"{printable(f'{directory}/{new}')} is there already")
        os.rename(old, new, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _open_directory(directory: str) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _require_same_file(directory: int, name: str, expected: os.stat_result) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != (expected.st_dev, expected.st_ino):
        raise Refused(f"another file bears the name {printable(name)} now: nothing is done to it")


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
