"""Rows out of a damaged SQLite file, page by page, without its index pages.

SQLite gives up at the first page of a tree that is missing. Every leaf page of a table, though, says by itself what
rows it holds (SQLite file format, sections 1.5 and 1.6), so what is still there can be read. Pages in the write-ahead
log take the place of those in the file. Stale pages may show rows that were deleted: the reader of the rows decides.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LEAF_TABLE = 0x0D
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_PAYLOAD_LIMIT = 128 << 20
_DEFAULT_PAGE = 4096


class Pages:
    """The pages of a database file and its write-ahead log, as many as there are."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where the file cannot be opened."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.page_size, reserved = _DEFAULT_PAGE, 0
        header = os.pread(self._file, 100, 0)
        if len(header) == 100:
            size: int = struct.unpack_from(">H", header, 16)[0]
            size = 65536 if size == 1 else size
            if 512 <= size <= 65536 and size & (size - 1) == 0:
                self.page_size, reserved = size, header[20]
        self._usable = self.page_size - (reserved if reserved <= 32 else 0)
        self.count = os.fstat(self._file).st_size // self.page_size
        self._wal, self._frames = self._read_wal(path.with_name(path.name + "-wal"))

    def close(self) -> None:
        for descriptor in (self._file, self._wal):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._wal = -1

    def rows(self) -> Iterator[tuple[int, int, int, list[Any]]]:
        """Every readable row of every table leaf: page, place of its cell, rowid, columns."""
        numbers = range(1, max(self.count, max(self._frames, default=0)) + 1)
        for number in numbers:
            page = self._page(number)
            start = 100 if number == 1 else 0
            if len(page) < start + 8 or page[start] != _LEAF_TABLE:
                continue
            cells = int.from_bytes(page[start + 3 : start + 5], "big")
            for index in range(min(cells, self.page_size // 4)):
                at = int.from_bytes(page[start + 8 + 2 * index : start + 10 + 2 * index], "big")
                row = self._cell(page, at)
                if row is not None:
                    yield number, at, row[0], row[1]

    def row(self, number: int, at: int) -> list[Any] | None:
        """The columns of the cell at that place, None where it cannot be read."""
        found = self._cell(self._page(number), at)
        return None if found is None else found[1]

    def _page(self, number: int) -> bytes:
        try:
            if number in self._frames:
                return os.pread(self._wal, self.page_size, self._frames[number])
            return os.pread(self._file, self.page_size, (number - 1) * self.page_size)
        except OSError:
            return b""

    def _cell(self, page: bytes, at: int) -> tuple[int, list[Any]] | None:
        try:
            size, at = _varint(page, at)
            rowid, at = _varint(page, at)
            payload = self._payload(page, at, size)
            return None if payload is None else (rowid, _record(payload))
        except (IndexError, struct.error, UnicodeDecodeError, ValueError, OverflowError):
            return None

    def _payload(self, page: bytes, at: int, size: int) -> bytes | None:
        """The payload of a cell with what lies on overflow pages, None where some of it is missing."""
        usable = self._usable
        local = size
        if size > usable - 35:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (usable - 4)
            local = local if local <= usable - 35 else least
        if size > _PAYLOAD_LIMIT or at + local > len(page):
            return None
        pieces, missing = [page[at : at + local]], size - local
        following = int.from_bytes(page[at + local : at + local + 4], "big") if missing else 0
        while missing > 0:
            overflow = self._page(following) if following else b""
            piece = overflow[4 : 4 + min(missing, usable - 4)]
            if not piece:
                return None
            pieces.append(piece)
            missing -= len(piece)
            following = int.from_bytes(overflow[:4], "big")
        return b"".join(pieces)

    def _read_wal(self, path: Path) -> tuple[int, dict[int, int]]:
        """The log and, by page number, where in it the newest committed image of a page stands."""
        try:
            wal = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return -1, {}
        header = os.pread(wal, 32, 0)
        frames: dict[int, int] = {}
        if len(header) < 32 or struct.unpack_from(">I", header)[0] not in _WAL_MAGIC:
            return wal, frames
        salts, at, pending = header[16:24], 32, dict[int, int]()
        while len(frame := os.pread(wal, 24, at)) == 24 and frame[8:16] == salts:
            number, commit = struct.unpack_from(">II", frame)
            pending[number] = at + 24
            if commit:
                frames.update(pending)
                pending = {}
            at += 24 + self.page_size
        return wal, frames


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's varint: highest seven bits first, the ninth byte whole."""
    number = 0
    for _ in range(8):
        byte = data[at]
        at += 1
        number = number << 7 | byte & 127
        if byte < 128:
            return number, at
    return number << 8 | data[at], at + 1


_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _record(payload: bytes) -> list[Any]:
    """The columns of a record (SQLite file format, section 2.1)."""
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    columns: list[Any] = []
    for kind in kinds:
        value, at = _column(payload, at, kind)
        columns.append(value)
    return columns


def _column(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in _INTEGER_SIZES:
        end = at + _INTEGER_SIZES[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind in (8, 9):
        return kind - 8, at
    end = at + (kind - 12) // 2
    if kind < 12 or end > len(payload):
        raise ValueError("not a column")
    return (payload[at:end].decode() if kind & 1 else payload[at:end]), end
