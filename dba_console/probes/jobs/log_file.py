"""A log file of others, read on from a place that is kept."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from dba_console.probes.jobs.file_descriptors import OpenFile

CHUNK_BYTES = 1 << 20
"""Bytes of one log read in one look."""
_BACK = 16 * CHUNK_BYTES
"""Bytes before its end in which the beginning of a run is looked for."""


@dataclass(frozen=True, slots=True)
class NewLines:
    """What came since the read before."""

    lines: tuple[bytes, ...]
    dropped: int
    """Bytes that were cut off the file before they were read."""


class LogFile:
    """A regular file somebody's messages go to. Used by one thread."""

    def __init__(self, file: OpenFile, root: str, offset: int, from_start: bool) -> None:
        """`root`: prefix under which its process's paths are found here. `from_start`: a run begins at `offset`."""
        self.path = file.path
        self.from_start = from_start
        self.reads = 0
        self._local_path = root + file.path
        self._identity = file.device, file.inode
        self._offset = offset
        self._rest = b""

    def read(self, *, ended: bool = False) -> NewLines | None:
        """Whole lines from its place on, and where it has `ended` a last one that is not; None where the path leads
        to another file now. Raises OSError."""
        descriptor = _open_same_file(self._local_path, self._identity)
        if descriptor is None:
            return None
        dropped = 0
        try:
            size = os.fstat(descriptor).st_size
            if size < self._offset:
                dropped, self._offset, self._rest = self._offset - size, 0, b""
            raw = os.pread(descriptor, CHUNK_BYTES, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(raw)
        self.reads += 1
        *whole, self._rest = (self._rest + raw).split(b"\n")
        if ended and self._rest:
            whole, self._rest = [*whole, self._rest], b""
        self._rest = self._rest[-CHUNK_BYTES:]
        return NewLines(tuple(whole), dropped)


def _open_same_file(path: str, identity: tuple[int, int]) -> int | None:
    """A descriptor of that very regular file, None where another one is there now. Raises OSError.

    Looked at before it is opened: opening a pipe would wait, or take from it.
    """
    at = os.stat(path)
    if (at.st_dev, at.st_ino) != identity or not stat.S_ISREG(at.st_mode):
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    opened = os.fstat(descriptor)
    if (opened.st_dev, opened.st_ino) == identity:
        return descriptor
    os.close(descriptor)
    return None


def find_run_start(path: str, file: OpenFile, words: bytes | None) -> int | None:
    """Where the last run in a log begins, None where that is not found. Raises OSError."""
    descriptor = None if words is None else _open_same_file(path, (file.device, file.inode))
    if words is None or descriptor is None:
        return None
    try:
        end = file.size
        while end > max(0, file.size - _BACK):
            begin = max(0, end - CHUNK_BYTES)
            # The words may stand across two pieces.
            found = os.pread(descriptor, end - begin + len(words), begin).rfind(words)
            if found >= 0:
                return begin + found
            end = begin
        return None
    finally:
        os.close(descriptor)
