"""Read a damaged session.db: rows that SQLite can no longer reach are read page by page."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dba_console.core.errors import Damaged, SessionError
from dba_console.recording import points, sample_block
from dba_console.recording.backlog import Gap
from dba_console.recording.journal import JournalRow, LogLine
from dba_console.recording.layout import DATABASE, SessionMeta
from dba_console.recording.sample_block import BlockEntry, SampleBlock, SampleRecord
from dba_console.recording.source import Source

T = TypeVar("T")


class FallbackSource:
    """Reads from `first`, and if that fails, from the source that `second` creates."""

    def __init__(self, first: Source, second: Callable[[], Source]) -> None:
        self._first = first
        self._make_second = second
        self._second: Source | None = None
        self.trouble: str | None = None
        """The problem of SQLite that made page reading necessary."""

    def meta(self) -> dict[str, str]:
        return self._first.meta()

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        return self._first.blocks(after_seq)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        return self._first.tail(after_seq)

    def block(self, first_seq: int) -> bytes:
        return self._with_fallback(lambda source: source.block(first_seq))

    def points(self, first_seq: int) -> bytes:
        return self._with_fallback(lambda source: source.points(first_seq))

    def journal(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[JournalRow]:
        return self._with_fallback(lambda source: source.journal(from_us, to_us, limit))

    def gaps(self) -> list[Gap]:
        return self._with_fallback(lambda source: source.gaps())

    def output(self) -> list[LogLine]:
        return self._first.output()

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()

    def _with_fallback(self, read: Callable[[Source], T]) -> T:
        try:
            return read(self._first)
        except Damaged as error:
            self.trouble = self.trouble or error.message
            if self._second is None:
                self._second = self._make_second()
            return read(self._second)


# Read rows of a damaged SQLite file page by page, without its interior pages.
#
# SQLite stops at the first missing page of a tree. But every table leaf page describes its own rows (SQLite file
# format, sections 1.5 and 1.6), so the remaining ones can be read. Pages in the write-ahead log replace those in the
# file. Stale pages may contain deleted rows: the caller must filter them.

_LEAF_TABLE = 0x0D
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_PAYLOAD_LIMIT = 128 << 20
_DEFAULT_PAGE = 4096


class Pages:
    """The existing pages of a database file and its write-ahead log."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be opened."""
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
        """Yield every readable row of every table leaf: page, offset of its cell, rowid, columns."""
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
        """Return the columns of the cell at that offset, None if it cannot be read."""
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
        """Return the payload of a cell including overflow pages, None if a part is missing."""
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
        """Return the log and, by page number, the offset of the newest committed image of a page."""
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
    """Return the columns of a record (SQLite file format, section 2.1)."""
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


# Rows of a session.db that SQLite cannot read: complete blocks, newest samples, events.
#
# Every block, row of the newest samples and event has its own marker and checksum, so it is recognised wherever it is
# found, and ignored if it is damaged.

_META_KEYS = {"closed", *(field.name for field in msgspec.structs.fields(SessionMeta))}


class PageSource:
    """A source of the rows found page by page."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError if the file cannot be opened."""
        try:
            self._pages = Pages(directory / DATABASE)
        except OSError as error:
            raise SessionError(f"cannot read {directory / DATABASE}: {error.strerror}") from error
        self._meta: dict[str, str] = {}
        self._entries: dict[int, BlockEntry] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._points: dict[int, tuple[int, int]] = {}
        self._tail: dict[int, bytes] = {}
        self._journal: dict[int, JournalRow] = {}
        self._gaps: set[Gap] = set()
        for number, at, rowid, columns in self._pages.rows():
            self._classify_row((number, at), rowid, columns)
        self._drop_sealed_rows()

    def found(self) -> bool:
        """Return whether any part of a recording was found."""
        return bool(self._entries or self._tail or self._journal or self._meta)

    def _classify_row(self, address: tuple[int, int], rowid: int, columns: list[Any]) -> None:
        match columns:
            case [_, bytes(data)] if data.startswith(sample_block.MAGIC):
                self._take_block(address, data)
            case [_, bytes(data)] if data.startswith(points.MAGIC):
                self._points[rowid] = address
            case [_, int(), bytes(data)] if data.startswith(sample_block.MAGIC):
                self._take_row(data)
            case [str(key), str(value)] if key in _META_KEYS:
                self._meta[key] = value
            case [int(), int(), int(), str()]:
                self._gaps.add(Gap(*columns))
            case [
                _, int(), int(), str(), str(), str(), str() | None, int() | None, str(), str(), str()
            ] if len(columns[10]) == 64:  # fmt: skip
                self._journal[rowid] = JournalRow(rowid, *columns[1:])

    def _take_block(self, address: tuple[int, int], data: bytes) -> None:
        try:
            entry = SampleBlock(data).entry
        except Damaged:
            return
        self._entries[entry.first_seq] = entry
        self._places[entry.first_seq] = address

    def _take_row(self, data: bytes) -> None:
        try:
            self._tail[SampleRecord.read(data).seq] = data
        except Damaged:
            # Ignore a row with a wrong checksum.
            return

    def _drop_sealed_rows(self) -> None:
        """Remove rows of samples that are also in a block: they are on free pages of SQLite."""
        spans = [(entry.first_us, entry.last_us) for entry in self._entries.values()]
        for seq, data in list(self._tail.items()):
            wall_us = SampleRecord.read(data).wall_us
            if any(first <= wall_us <= last for first, last in spans):
                del self._tail[seq]

    def meta(self) -> dict[str, str]:
        return self._meta

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        return [self._entries[seq] for seq in sorted(self._entries) if seq > after_seq]

    def block(self, first_seq: int) -> bytes:
        return self._blob(self._places, first_seq)

    def points(self, first_seq: int) -> bytes:
        return self._blob(self._points, first_seq)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        return [self._tail[seq] for seq in sorted(self._tail) if seq > after_seq]

    def journal(self, from_us: int | None, to_us: int | None, limit: int | None) -> list[JournalRow]:
        rows = [
            row
            for _, row in sorted(self._journal.items())
            if (from_us is None or row.wall_us >= from_us) and (to_us is None or row.wall_us <= to_us)
        ]
        return rows if limit is None else rows[max(0, len(rows) - limit) :]

    def gaps(self) -> list[Gap]:
        return sorted(self._gaps)

    def output(self) -> list[LogLine]:
        raise Damaged("lines of output are not read from a damaged file")

    def close(self) -> None:
        self._pages.close()

    def _blob(self, addresses: dict[int, tuple[int, int]], first_seq: int) -> bytes:
        address = addresses.get(first_seq)
        columns = None if address is None else self._pages.row(*address)
        if not columns or not isinstance(columns[-1], bytes):
            raise Damaged("a block of the recording is missing")
        return columns[-1]
