"""Write files atomically (complete or absent, also after a crash), and read files that others may replace."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

RESERVED_BYTES = 4096
"""Bytes reserved for a record that must still fit when the disk is full: one block of the file system."""


def write_atomically(directory: str, name: str, content: bytes, *, synced: bool = True) -> None:
    """Replace `directory/name` in one step (mode 0600). Raises OSError."""
    part = os.path.join(directory, f".{name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(descriptor, content)
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(part, os.path.join(directory, name))
    if synced:
        sync_directory(directory)


def read_small(path: str | Path, limit: int) -> bytes:
    """Return the first `limit` bytes of a file that others may replace: a link is not followed, and opening a pipe
    does not block. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file that someone else may have made, for reading: opening or reading a pipe or a device could take for
    ever. Raises OSError, also if it is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


@contextmanager
def complete_file(path: Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Yield a file beside `path` (0600) that gets that name when the block ends without an exception, else is removed.

    Raises FileExistsError if the name exists and may not be overwritten, or is not a regular file; OSError.
    """
    _refuse_existing(path, overwrite)
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if overwrite:
            os.replace(part, path)
        else:
            _name_new(part, path)
        sync_directory(path.parent)
    finally:
        Path(part).unlink(missing_ok=True)


def _name_new(part: str, path: Path) -> None:
    """Give the file a name that did not exist. Raises FileExistsError if it was created meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links, as vfat: renaming would replace a file created in this moment.
        _refuse_existing(path, overwrite=False)
        os.rename(part, path)


def _refuse_existing(path: Path, overwrite: bool) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise FileExistsError(f"{path} is not a regular file")
    if not overwrite:
        raise FileExistsError(f"{path} exists")


class ReservedFile:
    """A file whose blocks are allocated now and filled later, so that a full disk cannot prevent it."""

    def __init__(self, directory: str, name: str) -> None:
        """Raises OSError if there is no space."""
        self._directory = directory
        self._part, self._path = os.path.join(directory, f".{name}.part"), os.path.join(directory, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._part, flags, 0o600)
        try:
            # Written, not only allocated: a file system may need space to turn an allocated block into a written one.
            write_all(self._descriptor, b"\0" * RESERVED_BYTES)
            os.fsync(self._descriptor)
        except OSError:
            self.discard()
            raise

    def finish(self, content: bytes) -> None:
        """Create the file, with `content`. Raises OSError."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        write_all(self._descriptor, content)
        os.ftruncate(self._descriptor, len(content))
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        os.replace(self._part, self._path)
        sync_directory(self._directory)

    def discard(self) -> None:
        """Release the reserved space; no file is created."""
        os.close(self._descriptor)
        os.unlink(self._part)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of `content`. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Make names created or changed in `directory` durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
