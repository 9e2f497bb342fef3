"""The table of contents of an archive of pg_dump: versions 1.12 to 1.16, as directory, custom or tar begin with it.

Read in pieces of bounded size, from a file that may still be written, cut short, damaged or hostile. What is no
archive, or is none that this knows, is an ArchiveError; an archive cut short in its table of contents is one too.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from msgspec import Struct

from dba_console.errors import ConsoleError, ExitCode

MAGIC = b"PGDMP"
OLDEST = (1, 12)
NEWEST = (1, 16)
_FORMATS = {1: "custom", 3: "tar", 4: "null", 5: "directory"}
_COMPRESSIONS = {0: "none", 1: "gzip", 2: "lz4", 3: "zstd"}
_WINDOW = 1 << 20
"""Bytes read at a time."""
_LARGEST_ENTRY = 64 << 20
"""Bytes of one entry: its statement may be a function of megabytes, but a length beyond this is damage."""
_LAYOUT = {13: "nnttttn--tt-t-", 14: "nnttttn--tt--t-", 15: "nnttttn--tt--t-", 16: "nnttttn--tt--.t-"}
"""An entry by minor version up to what it needs: its number, whether it has data, two oids, name, kind, section; the
statements that make, drop and fill it, of which the last is read; schema, tablespace, from 14 access method, from 16
relkind; owner; WITH OIDS."""
_COPY = re.compile(r"COPY [^()]*?(?: \(([^()]*)\))? +FROM stdin;\s*")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_MOST_ENTRIES = 5_000_000
_LONGEST_NAME = 4096
"""Bytes kept of a name: a function's has its argument list."""


class ArchiveError(ConsoleError):
    """A file that is no archive, is cut short, or of a version that is not known."""

    code = ExitCode.UNSUPPORTED


class NoArchiveError(ArchiveError):
    """There is nothing at the path, or it cannot be opened."""

    code = ExitCode.USAGE


class TocEntry(Struct, frozen=True, gc=False):
    """One entry as it is written. Names are server text."""

    dump_id: int
    dumper: bool
    """It has data in the archive."""
    table_oid: int
    """Of the catalog its oid is in."""
    oid: int
    tag: str
    desc: str
    section: int
    """1: none, 2: before the data, 3: data, 4: after it."""
    schema: str | None
    owner: str | None
    needs: tuple[int, ...]
    file: str | None
    """Of a directory or tar archive: the name of its data file; a directory's without suffix of compression."""
    offset: int | None
    """Of a custom archive: where its data begins; None while it is written, or where it was written into a pipe."""
    columns: int | None = None
    """Of a table's data in COPY's form; None where the archive does not tell, or names more than are read here."""


class Toc(Struct, frozen=True, kw_only=True):
    """Head and entries, in the archive's order."""

    version: tuple[int, int, int]
    format: str
    compression: str
    level: int | None
    """Of the compression, where the archive tells it: up to version 1.14, -1 being its default."""
    created: tuple[int, int, int, int, int, int, int]
    """Year, month, day, hour, minute, second by the clock of the host that dumped, and whether that was summer time."""
    database: str | None
    server_version: str | None
    dump_version: str | None
    entries: tuple[TocEntry, ...]


class _Cut(Exception):
    """The bytes at hand do not hold what is being read."""


class _Bytes:
    """A window on a file; numbers and texts as an archive writes them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.held = b""
        self.at = 0
        self.int_size = 4
        self.offset_size = 8
        self.encoding = "utf-8"

    def more(self) -> bool:
        """Read on, from where the current entry begins; False at the end of the file."""
        read = self._file.read(_WINDOW)
        if not read:
            return False
        if len(self.held) - self.at > _LARGEST_ENTRY:
            raise ArchiveError(
                f"an entry of the table of contents is longer than {_LARGEST_ENTRY >> 20} MB", hint=_DAMAGED
            )
        self.held = self.held[self.at :] + read
        self.at = 0
        return True

    def raw(self, size: int) -> bytes:
        at = self.at
        if at + size > len(self.held):
            raise _Cut
        self.at = at + size
        return self.held[at : at + size]

    def byte(self) -> int:
        return self.raw(1)[0]

    def number(self) -> int:
        at, held, size = self.at, self.held, self.int_size
        end = at + 1 + size
        if end > len(held):
            raise _Cut
        self.at = end
        value = int.from_bytes(held[at + 1 : end], "little")
        return -value if held[at] else value

    def text(self) -> str | None:
        size = self.number()
        if size < 0:
            return None
        value = self.raw(size)
        if size > _LONGEST_NAME:
            value = value[:_LONGEST_NAME]
        return value.decode(self.encoding, "replace")

    def fields(self, layout: str) -> list[int | str | None]:
        """Numbers (`n`) and texts (`t`); numbers (`.`) and texts (`-`) that nobody asks for are passed over, no copy of
        them is made. At one go: an archive has a dozen and more of them for each of its objects."""
        held, at, size, whole = self.held, self.at, self.int_size, len(self.held)
        values: list[int | str | None] = []
        for kind in layout:
            begin = at + 1 + size
            if begin > whole:
                raise _Cut
            value = int.from_bytes(held[at + 1 : begin], "little")
            if held[at]:
                value = -value
            at = begin
            if kind == "n":
                values.append(value)
                continue
            if kind == ".":
                continue
            if value > 0:
                at += value
                if at > whole:
                    if value > _LARGEST_ENTRY:
                        raise ArchiveError("a length in the table of contents is beyond all measure", hint=_DAMAGED)
                    raise _Cut
            if kind == "t":
                upto = min(at, begin + _LONGEST_NAME)
                values.append(None if value < 0 else str(held[begin:upto], self.encoding, "replace"))
        self.at = at
        return values

    def data_offset(self) -> int | None:
        flag = self.byte()
        value = int.from_bytes(self.raw(self.offset_size), "little")
        if flag not in (0, 1, 2, 3):
            raise ArchiveError(f"a data offset of the table of contents has the unknown mark {flag}", hint=_DAMAGED)
        return value if flag == 2 else None


_DAMAGED = "the archive is damaged, or was cut short while it was copied: compare it with where it came from"
_UNDER_WAY = "a dump that is still being written shows its table of contents only once the catalog has been read"


def read_toc(file: BinaryIO) -> Toc:
    """Read head and table of contents. Raises ArchiveError for what is none, is cut short, or of another version."""
    bytes_ = _Bytes(file)
    bytes_.more()
    try:
        toc, count = _head(bytes_)
        entries = _entries(bytes_, toc, count)
    except _Cut:
        raise ArchiveError("the archive ends within its table of contents", hint=_UNDER_WAY) from None
    return Toc(**{**{name: getattr(toc, name) for name in toc.__struct_fields__}, "entries": entries})


def _head(read: _Bytes) -> tuple[Toc, int]:
    """The head, and how many entries follow. A head is far shorter than a window."""
    if read.raw(len(MAGIC)) != MAGIC:
        raise ArchiveError("not an archive of pg_dump: it does not begin with PGDMP")
    major, minor, revision = read.raw(3)
    if not OLDEST <= (major, minor) <= NEWEST:
        raise _unknown_version(major, minor)
    read.int_size, read.offset_size, form = read.raw(3)
    if read.int_size not in range(1, 9) or read.offset_size not in range(1, 9) or form not in _FORMATS:
        raise ArchiveError("the head of the archive makes no sense", hint=_DAMAGED)
    level: int | None = None
    if (major, minor) >= (1, 15):
        method = _COMPRESSIONS.get(read.byte(), "unknown")
    else:
        level = read.number()
        method = "none" if level == 0 else "gzip"
    second, minute, hour, day, month, year, summer = (read.number() for _ in range(7))
    toc = Toc(
        version=(major, minor, revision),
        format=_FORMATS[form],
        compression=method,
        level=level,
        created=(year + 1900, month + 1, day, hour, minute, second, summer),
        database=read.text(),
        server_version=read.text(),
        dump_version=read.text(),
        entries=(),
    )
    count = read.number()
    if not 0 <= count <= _MOST_ENTRIES:
        raise ArchiveError(f"the archive claims to have {count} entries", hint=_DAMAGED)
    return toc, count


def _unknown_version(major: int, minor: int) -> ArchiveError:
    if (major, minor) > NEWEST:
        newer = f"the archive is of version {major}.{minor}, newer than {NEWEST[0]}.{NEWEST[1]}, which is known here"
        return ArchiveError(newer, hint="a pg_restore of the release that wrote it, or of a later one, can read it")
    return ArchiveError(f"the archive is of version {major}.{minor}: of a pg_dump before 9.0", hint=None)


def _entries(read: _Bytes, toc: Toc, count: int) -> tuple[TocEntry, ...]:
    minor = toc.version[1]
    texts: dict[str, str] = {}
    entries: list[TocEntry] = []
    for _ in range(count):
        while True:
            begin = read.at
            try:
                entries.append(_entry(read, minor, toc.format, texts))
                break
            except _Cut:
                read.at = begin
                if not read.more():
                    raise
            except ValueError as error:
                raise ArchiveError("an entry of the table of contents makes no sense", hint=_DAMAGED) from error
    return tuple(entries)


def _entry(read: _Bytes, minor: int, form: str, texts: dict[str, str]) -> TocEntry:
    """One entry; `texts` keeps one copy of what thousands of entries share."""
    dump_id, dumper, table_oid, oid, tag, desc, section, copy, schema, owner = read.fields(
        _LAYOUT[min(max(minor, 13), 16)]
    )
    needs = []
    while (need := read.text()) is not None:
        needs.append(int(need))
    file, offset = None, None
    if form == "custom":
        offset = read.data_offset()
    else:
        file = read.text() or None
    if not isinstance(dump_id, int) or not isinstance(section, int):
        raise ValueError("a number is none")  # never: the layout has them so
    return TocEntry(
        dump_id,
        dumper != 0,
        int(table_oid or 0),
        int(oid or 0),
        str(tag or ""),
        _one(texts, desc) or "",
        section,
        _one(texts, schema),
        _one(texts, owner),
        tuple(needs),
        file,
        offset,
        _columns(copy) if isinstance(copy, str) else None,
    )


def _columns(statement: str) -> int | None:
    """How many columns a COPY statement names.

    >>> _columns('COPY public."a (b" (x, "y, (z", w) FROM stdin;'), _columns('COPY public.t ("Name") FROM stdin;')
    (3, 1)
    >>> _columns("COPY public.empty  FROM stdin;")
    0
    """
    match = _COPY.fullmatch(_QUOTED.sub("x", statement))
    if match is None:
        return None
    return match[1].count(",") + 1 if match[1] else 0


def _one(texts: dict[str, str], value: int | str | None) -> str | None:
    """The one copy of a text that thousands of entries share."""
    return texts.setdefault(value, value) if isinstance(value, str) and value else None
