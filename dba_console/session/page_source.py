"""What can still be read of a session.db that SQLite cannot read: whole blocks, newest samples, events.

Every block, row of the newest samples and event carries its own mark and checksum, so it is known for what it is
wherever it is found, and not believed where it is damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dba_console.errors import SessionError
from dba_console.session import blockformat, points, unsealed_samples
from dba_console.session.backlog import Gap
from dba_console.session.damage import Damaged
from dba_console.session.journal import JournalRow
from dba_console.session.layout import DATABASE
from dba_console.session.loglines import LogLine
from dba_console.session.meta import SessionMeta
from dba_console.session.source import BlockEntry
from dba_console.session.sqlite_pages import Pages

_META_KEYS = {"closed", *(field.name for field in msgspec.structs.fields(SessionMeta))}


class PageSource:
    """A source made of whatever rows are left."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError where the file cannot be opened at all."""
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
        """True where anything of a recording was found."""
        return bool(self._entries or self._tail or self._journal or self._meta)

    def _classify_row(self, address: tuple[int, int], rowid: int, columns: list[Any]) -> None:
        match columns:
            case [_, bytes(data)] if data.startswith(blockformat.MAGIC):
                self._take_block(address, data)
            case [_, bytes(data)] if data.startswith(points.MAGIC):
                self._points[rowid] = address
            case [_, int(), bytes(data)] if data.startswith(unsealed_samples.MAGIC):
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
        if not blockformat.whole(data):
            return
        head = blockformat.read_head(data)
        self._entries[head.first_seq] = BlockEntry(head.first_seq, head.samples, head.first_us, head.last_us)
        self._places[head.first_seq] = address

    def _take_row(self, data: bytes) -> None:
        try:
            self._tail[unsealed_samples.read_head(data).seq] = data
        except Damaged:
            # A row that does not match its checksum is not there.
            return

    def _drop_sealed_rows(self) -> None:
        """Rows of samples that are in a block as well: left over on pages SQLite had given back."""
        spans = [(entry.first_us, entry.last_us) for entry in self._entries.values()]
        for seq, data in list(self._tail.items()):
            wall_us = unsealed_samples.read_head(data).wall_us
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
        raise Damaged("lines of output are not looked for in a damaged file")

    def close(self) -> None:
        self._pages.close()

    def _blob(self, addresses: dict[int, tuple[int, int]], first_seq: int) -> bytes:
        address = addresses.get(first_seq)
        columns = None if address is None else self._pages.row(*address)
        if not columns or not isinstance(columns[-1], bytes):
            raise Damaged("a block of the recording is missing")
        return columns[-1]
