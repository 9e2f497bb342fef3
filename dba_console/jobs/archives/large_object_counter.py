"""Count the large objects that a running dump has written to a custom archive.

Its data follow the table of contents in blocks: a type and a dump id, then chunks with their length; of large objects
first the oid of each (pg_backup_custom.c, unchanged in archive versions 1.12 to 1.16). Only the lengths are read, from
where the last read ended.
"""

from __future__ import annotations

import os
from enum import Enum

from dba_console.core.atomic_files import open_regular
from dba_console.jobs.archives.toc import ArchiveError, read_toc

MAX_STEPS = 50_000
"""Chunks per read, about a tenth of a second."""
_TABLE, _LARGE_OBJECTS = 1, 3


class _Next(Enum):
    BLOCK = "a block's type"
    OID = "a large object's oid"
    CHUNK = "a chunk of table data"
    LARGE_CHUNK = "a chunk of a large object"


class LargeObjectCounter:
    """Counts the large objects in a growing archive, read by read. Not thread-safe."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at: int | None = None
        self._int_size = 4
        self._next = _Next.BLOCK
        self._count = 0
        self._unknown = False

    def count(self) -> int | None:
        """Return their number so far; None if it is not known (yet). Reads a file: only in a lane."""
        if self._unknown:
            return None
        try:
            with open_regular(self._path) as file:
                if self._at is None:
                    toc = read_toc(file)
                    self._at, self._int_size = toc.end, toc.int_size
                    self._unknown = toc.format != "custom"
                return self._count if not self._unknown and self._read(file.fileno()) else None
        except (ArchiveError, OSError):
            return None

    def _read(self, descriptor: int) -> bool:
        """Read on to the end of the file; return whether it was reached."""
        size = os.fstat(descriptor).st_size
        for _ in range(MAX_STEPS):
            at = self._at or 0
            head = os.pread(descriptor, self._int_size + 2, at)
            length = self._int_size + (2 if self._next is _Next.BLOCK else 1)
            if at >= size or len(head) < length:
                return True
            number = int.from_bytes(head[length - self._int_size : length], "little")
            self._step(head[0], number, length)
            if self._unknown:
                return False
        return False

    def _step(self, first: int, number: int, length: int) -> None:
        chunk = self._next in (_Next.CHUNK, _Next.LARGE_CHUNK)
        self._at = (self._at or 0) + length + (number if chunk else 0)
        if self._next is _Next.BLOCK:
            self._unknown = first not in (_TABLE, _LARGE_OBJECTS)
            self._next = _Next.CHUNK if first == _TABLE else _Next.OID
        elif self._next is _Next.OID:
            self._next = _Next.LARGE_CHUNK if number else _Next.BLOCK
        elif number == 0:
            self._count += self._next is _Next.LARGE_CHUNK
            self._next = _Next.OID if self._next is _Next.LARGE_CHUNK else _Next.BLOCK
