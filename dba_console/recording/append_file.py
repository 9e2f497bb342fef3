"""Append to a file so that, after a failed write, each record is in it completely or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class AppendFile:
    """Append-only file. Every call may block on the disk without a limit."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = size
        """Bytes that were appended completely."""
        self._spoiled = False

    @classmethod
    def create(cls, path: Path, data: bytes) -> AppendFile:
        """Create a durable file with this content. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC | _FLAGS, 0o600)
        made = cls(path, descriptor, 0)
        try:
            made.append(data)
        except OSError:
            made.close()
            raise
        return made

    @classmethod
    def open(cls, path: Path) -> AppendFile:
        """Open the existing file for appending. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
        return cls(path, descriptor, os.fstat(descriptor).st_size)

    def append(self, data: bytes, *, sync: bool = True) -> None:
        """Write, and sync if wanted. On OSError, truncate what was written and raise it."""
        if self._spoiled:
            self.cut(self.size)
        self._spoiled = True
        try:
            if (written := os.write(self._descriptor, data)) < len(data):
                # A short write happens when the disk becomes full; the next write fails.
                os.write(self._descriptor, data[written:])
            if sync:
                os.fdatasync(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            if size != self.size + len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self.cut(self.size)
            raise
        self.size = size
        self._spoiled = False

    def cut(self, size: int) -> None:
        """Truncate to an earlier size. Raises OSError if that fails: the next append tries it again first."""
        self.size, self._spoiled = size, True
        os.ftruncate(self._descriptor, size)
        self._spoiled = False

    def whole(self) -> bool:
        """Return whether the file ends with a line end. Raises OSError."""
        return self.size == 0 or os.pread(self._descriptor, 1, self.size - 1) == b"\n"

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
