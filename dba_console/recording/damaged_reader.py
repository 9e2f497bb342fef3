"""Read a damaged session without SQLite, by searching its files for records that carry a checksum or hash.

`session.samples` consists of records with a checksum each. Events in `session.db` are lines of JSON that end with a
hash, and a line fits into one page of the database, so it is found in the bytes of the file or of its write-ahead log.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from dba_console.core.atomic_files import open_regular
from dba_console.core.decoding import convert
from dba_console.core.errors import Damaged, SessionError
from dba_console.recording.backlog import Gap
from dba_console.recording.journal import END, GAP, START, JournalRow, LogLine, event_of
from dba_console.recording.layout import DATABASE
from dba_console.recording.points import points_at
from dba_console.recording.sample_block import BlockEntry, SampleRecord, scan_records
from dba_console.recording.source import SampleFile, Source

T = TypeVar("T")

_EVENT = re.compile(rb'\{"seq":\d+,"wall_us":(\d+),')
_LINE_END = re.compile(rb',"hash":"[0-9a-f]{64}"\}')
_LINE_LIMIT = 1 << 16
"""Bytes searched for the end of a line: the largest page of SQLite."""


class FallbackSource:
    """Reads from `first`, and if that fails, from the source that `second` creates."""

    def __init__(self, first: Source, second: Callable[[], Source], unclosed: bool) -> None:
        """`unclosed`: the writer was killed; SQLite ignores what follows damage in its write-ahead log."""
        self._first = first
        self._unclosed = unclosed
        self._make_second = second
        self._second: Source | None = None
        self.trouble: str | None = None
        """The problem of SQLite that made the search necessary."""

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

    def journal(
        self, from_us: int | None, to_us: int | None, limit: int | None, after_seq: int | None = None
    ) -> list[JournalRow]:
        rows = self._with_fallback(lambda source: source.journal(from_us, to_us, limit, after_seq))
        if self._unclosed:
            newest = rows[-1].seq if rows else after_seq or 0
            rows += [row for row in self._search().journal(from_us, to_us, None) if row.seq > newest]
        return _limited(rows, limit, after_seq)

    def notes(self, after_seq: int) -> tuple[int, list[JournalRow]]:
        newest, rows = self._with_fallback(lambda source: source.notes(after_seq))
        if self._unclosed:
            last, found = self._search().notes(max(newest, after_seq))
            newest, rows = max(newest, last), rows + found
        return newest, rows

    def gaps(self) -> list[Gap]:
        return self._with_fallback(lambda source: source.gaps())

    def output(self, after: int = 0, limit: int = -1) -> list[LogLine]:
        return self._first.output(after, limit)

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()

    def _with_fallback(self, read: Callable[[Source], T]) -> T:
        try:
            return read(self._first)
        except Damaged as error:
            self.trouble = self.trouble or error.message
            return read(self._search())

    def _search(self) -> Source:
        if self._second is None:
            self._second = self._make_second()
        return self._second


def _limited(rows: list[JournalRow], limit: int | None, after_seq: int | None) -> list[JournalRow]:
    """Return the first `limit` rows if they follow a number, else the last ones."""
    if limit is None:
        return rows
    return rows[max(0, len(rows) - limit) :] if after_seq is None else rows[:limit]


class ScanSource:
    """A source of what was found by searching the files."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError if session.db cannot be opened."""
        self._rows: dict[int, JournalRow] = {}
        try:
            for name in (DATABASE, DATABASE + "-wal"):
                if name == DATABASE or (directory / name).exists():
                    with open_regular(directory / name) as file:
                        self._find_events(file.fileno())
        except OSError as error:
            raise SessionError(f"cannot read {directory / name}: {error.strerror}") from error
        self._samples = SampleFile(directory)

    def found(self) -> bool:
        """Return whether any part of a recording was found."""
        return bool(self._entries or self._rows)

    def _find_events(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size == 0:
            return
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as data:
            for start in _EVENT.finditer(data):
                at = start.start()
                for end in _LINE_END.finditer(data, at, at + _LINE_LIMIT):
                    try:
                        seq = json.loads(data[at : end.end()])["seq"]
                    except (ValueError, RecursionError):
                        continue  # a hash within the details, or bytes of another row in between
                    line = data[at : end.end()].decode()
                    self._rows[seq] = JournalRow(seq, int(start[1]), line)
                    break

    @cached_property
    def _entries(self) -> dict[int, BlockEntry]:
        """Every record and what follows a block; a block ends where a record of it is missing."""
        entries: dict[int, BlockEntry] = {}
        if not self._samples.size():
            return entries
        with mmap.mmap(self._samples.descriptor, 0, prot=mmap.PROT_READ) as data:
            entry: BlockEntry | None = None
            for at, record in scan_records(data):
                entry = self._with_record(entry, at, record)
                if entry is None:
                    continue
                points = points_at(data, entry.at + entry.size)
                if points is not None and points[0] == entry.first_seq:
                    entry = entry._replace(points_size=points[1])
                entries[entry.first_seq] = entry
        return entries

    @staticmethod
    def _with_record(entry: BlockEntry | None, at: int, record: SampleRecord) -> BlockEntry | None:
        """Return the block with one more record, a new one, or None if the record cannot be read without others."""
        if record.position == 0:
            return BlockEntry(record.seq, 1, record.wall_us, record.wall_us, at, record.end, 0)
        if entry is None or (record.base_seq, record.position) != (entry.first_seq, entry.samples):
            return None
        return entry._replace(samples=entry.samples + 1, last_us=record.wall_us, size=at - entry.at + record.end)

    def meta(self) -> dict[str, str]:
        """Return the metadata as the events have them."""
        values: dict[str, str] = {}
        for row in self._rows.values():
            event = event_of(row)
            if event.kind == START and isinstance(meta := event.details.get("meta"), dict):
                values |= {key: str(value) for key, value in meta.items()}
            elif event.kind == END:
                reason = event.text.partition(": ")[2]
                values["closed"] = json.dumps({"reason": reason, "events": row.seq, "head": row.hash})
        return values

    def blocks(self, after_seq: int = -1) -> list[BlockEntry]:
        return [self._entries[seq] for seq in sorted(self._entries) if seq > after_seq]

    def block(self, first_seq: int) -> bytes:
        entry = self._entry(first_seq)
        return self._samples.read(entry.at, entry.size)

    def points(self, first_seq: int) -> bytes:
        entry = self._entry(first_seq)
        return self._samples.read(entry.at + entry.size, entry.points_size)

    def tail(self, after_seq: int = -1) -> list[bytes]:
        """Return nothing: the newest samples are a block like the others."""
        return []

    def journal(
        self, from_us: int | None, to_us: int | None, limit: int | None, after_seq: int | None = None
    ) -> list[JournalRow]:
        rows = [
            row
            for seq, row in sorted(self._rows.items())
            if (from_us is None or row.wall_us >= from_us)
            and (to_us is None or row.wall_us <= to_us)
            and (after_seq is None or seq > after_seq)
        ]
        return _limited(rows, limit, after_seq)

    def notes(self, after_seq: int) -> tuple[int, list[JournalRow]]:
        rows = [
            row for seq, row in sorted(self._rows.items()) if seq > after_seq and '"occurred_us":null' not in row.line
        ]
        return max(self._rows, default=0), rows

    def gaps(self) -> list[Gap]:
        """Return the gaps that are events too."""
        found = []
        for event in map(event_of, self._rows.values()):
            if event.kind == GAP:
                try:
                    found.append(convert({**event.details, "reason": event.text.partition(": ")[2]}, Gap))
                except msgspec.ValidationError:
                    continue
        return sorted(found)

    def output(self, after: int = 0, limit: int = -1) -> list[LogLine]:
        raise Damaged("lines of output are not read from a damaged file")

    def close(self) -> None:
        self._samples.close()

    def _entry(self, first_seq: int) -> BlockEntry:
        if first_seq not in self._entries:
            raise Damaged("a block of the recording is missing")
        return self._entries[first_seq]
