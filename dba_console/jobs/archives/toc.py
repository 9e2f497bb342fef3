"""Read the table of contents (TOC) of a pg_dump archive: versions 1.12 to 1.16, directory, custom or tar format.

Reads in pieces of bounded size, from a file that may be incomplete, truncated, damaged or hostile. Raises ArchiveError
for other files, unknown versions and a truncated table of contents.
"""

from __future__ import annotations

import re
from typing import BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.errors import ConsoleError, ExitCode

MAGIC = b"PGDMP"
OLDEST = (1, 12)
NEWEST = (1, 16)
_FORMATS = {1: "custom", 3: "tar", 4: "null", 5: "directory"}
_COMPRESSIONS = {0: "none", 1: "gzip", 2: "lz4", 3: "zstd"}
_WINDOW = 1 << 20
"""Bytes read at a time."""
_LARGEST_ENTRY = 64 << 20
"""Bytes of one entry: a function definition may have megabytes, but a larger length means damage."""
_LAYOUT = {13: "nnttttni-tt-t-", 14: "nnttttni-tt--t-", 15: "nnttttni-tt--t-", 16: "nnttttni-tt--.t-"}
"""Fields of an entry before its dependencies, by minor version: dump id, has data, two oids, tag, desc, section; the
statements that create, drop and copy it, of which the first is read of an index and of the database itself, and the
last; schema, tablespace, from 14 access method, from 16 relkind; owner; WITH OIDS."""
_TAG_FIELD, _DESC_FIELD = 4, 5
"""Positions of tag and desc among the fields read."""
_INDEX_METHOD = re.compile(r"\sUSING\s+(\w+)\s+\([^()]*([()])")
_COPY = re.compile(r"COPY [^()]*?(?: \(([^()]*)\))? +FROM stdin;\s*")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_MOST_ENTRIES = 5_000_000
_LONGEST_NAME = 4096
"""Bytes stored of a name: a function's includes its argument list."""


class ArchiveError(ConsoleError):
    """The file is not an archive, is truncated, or has an unknown version."""

    code = ExitCode.UNSUPPORTED


class ArchiveNotFoundError(ArchiveError):
    """The path does not exist or cannot be opened."""

    code = ExitCode.USAGE


Phase = Literal["schema", "data", "indexes", "constraints", "rest"]
PHASES: tuple[Phase, ...] = ("schema", "data", "indexes", "constraints", "rest")
"""In the order in which they start; with -j the later ones overlap. `schema`: everything before the data;
`indexes`: INDEX, and CONSTRAINT of a primary key, unique or exclusion constraint, which builds an index; `constraints`:
foreign keys and checks validated after the data; `rest`: triggers, privileges, comments, materialized view data,
statistics."""


class DumpEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One entry of an archive's table of contents, or a table of a dump that has no table of contents."""

    dump_id: int
    """As in `finished item ID` and in the name of a data file; counted from 1 without an archive."""
    desc: str
    """As in pg_restore -l: TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: Phase
    section: int = 0
    """1: none, 2: before the data, 3: data, 4: after it; 0 without an archive."""
    schema: str | None = None
    tag: str = ""
    """The name as in the archive; of a constraint or trigger `TABLE NAME`. Server text: clean() before it is shown."""
    owner: str | None = None
    oid: int | None = None
    """In the dumped database."""
    file: str | None = None
    """In a directory or tar archive: its data file; in a directory without compression suffix."""
    offset: int | None = None
    """In a custom archive: offset of its data; None while it is written, or if it was written to a pipe."""
    columns: int | None = None
    """Of its data in COPY format; None if not recorded, or the statement is too long."""
    statement: str | None = None
    """What creates it; only of the database itself."""
    compressed: bool = False
    """Most of its pages are TOAST: how long its rows are is not known from their pages."""
    method: str | None = None
    """Of an index whose build takes another time than that of a btree on columns: its access method, `expression` for a
    btree on expressions."""
    weight: float | None = None
    """Bytes of its data: in a dump the table's pages with TOAST, in a restore its size in the archive. An index, key or
    constraint has the weight of its table's data, a foreign key the mean of its two tables, a materialized view the sum
    of the tables it reads. None: not known; 0: none."""
    rows: float | None = None
    """Of a table, as estimated in the dumped database."""
    table: int | None = None
    """Dump id of the TABLE DATA it belongs to, also of that itself; None if it belongs to none."""
    needs: tuple[int, ...] = ()
    """Dump ids it depends on; in a plan after the data phase the table's data instead of the table."""

    @property
    def kind(self) -> str:
        """Objects of one kind take comparable times: its desc, of an index also its method, and compressed data."""
        if self.compressed:
            return f"{self.desc} compressed"
        return self.desc if self.method is None else f"{self.desc} {self.method}"

    @property
    def qualified_name(self) -> str:
        """Its name with its schema, as in the archive."""
        return f"{self.schema}.{self.tag}" if self.schema else self.tag


PHASE_OF_DESC: dict[str, Phase] = {
    "TABLE DATA": "data",
    "BLOBS": "data",
    "INDEX": "indexes",
    "CONSTRAINT": "indexes",
    "FK CONSTRAINT": "constraints",
    "CHECK CONSTRAINT": "constraints",
}
BEFORE_DATA = 2
COMPRESSION_SUFFIXES = (".gz", ".lz4", ".zst")
"""Of data files, in the order in which pg_restore tries them."""


def phase_of(desc: str, section: int) -> Phase:
    """Return the phase of an object; `section` is the number in the table of contents."""
    known = PHASE_OF_DESC.get(desc)
    if known is not None:
        return known
    return "schema" if section == BEFORE_DATA else "rest"


def file_stem(name: str) -> str:
    """Return the name of a data file without its compression suffix.

    >>> file_stem("2661.dat.zst")
    '2661.dat'
    """
    for suffix in COMPRESSION_SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


class Toc(Struct, frozen=True, kw_only=True):
    """Header and entries, in the archive's order."""

    version: tuple[int, int, int]
    format: str
    compression: str
    created: tuple[int, int, int, int, int, int, int]
    """Year, month, day, hour, minute, second in local time of the dumping host, and the daylight saving flag."""
    database: str | None
    server_version: str | None
    dump_version: str | None
    entries: tuple[DumpEntry, ...]
    end: int = 0
    """Offset of what follows it in the file."""
    int_size: int = 4
    """Bytes of a number in this archive."""


class _Truncated(Exception):
    """The buffer ends within the value being read."""


class _TocReader:
    """Buffered reader for an archive's numbers and texts."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.buffer = b""
        self.position = 0
        self._read = 0
        self.int_size = 4
        self.offset_size = 8
        self.encoding = "utf-8"

    def read_more(self) -> bool:
        """Read more, keeping the bytes of the current entry; False at the end of the file."""
        read = self._file.read(_WINDOW)
        if not read:
            return False
        if len(self.buffer) - self.position > _LARGEST_ENTRY:
            raise ArchiveError(
                f"an entry of the table of contents is longer than {_LARGEST_ENTRY >> 20} MB", hint=_DAMAGED
            )
        self.buffer = self.buffer[self.position :] + read
        self.position = 0
        self._read += len(read)
        return True

    @property
    def offset(self) -> int:
        """Bytes of the file before the position."""
        return self._read - len(self.buffer) + self.position

    def read_bytes(self, size: int) -> bytes:
        at = self.position
        if at + size > len(self.buffer):
            raise _Truncated
        self.position = at + size
        return self.buffer[at : at + size]

    def read_byte(self) -> int:
        return self.read_bytes(1)[0]

    def read_number(self) -> int:
        at, held, size = self.position, self.buffer, self.int_size
        end = at + 1 + size
        if end > len(held):
            raise _Truncated
        self.position = end
        value = int.from_bytes(held[at + 1 : end], "little")
        return -value if held[at] else value

    def read_text(self) -> str | None:
        size = self.read_number()
        if size < 0:
            return None
        value = self.read_bytes(size)
        if size > _LONGEST_NAME:
            value = value[:_LONGEST_NAME]
        return value.decode(self.encoding, "replace")

    def read_fields(self, layout: str) -> list[int | str | None]:
        """Read numbers (`n`) and texts (`t`), of some entries also the statement (`i`); skip other numbers (`.`) and
        texts (`-`) without a copy. One loop for speed: an archive has a dozen or more of them per object."""
        held, at, size, whole = self.buffer, self.position, self.int_size, len(self.buffer)
        values: list[int | str | None] = []
        for kind in layout:
            begin = at + 1 + size
            if begin > whole:
                raise _Truncated
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
                        raise ArchiveError("invalid length in the table of contents", hint=_DAMAGED)
                    raise _Truncated
            if kind == "i":
                wanted = values[_DESC_FIELD] == "INDEX" or is_of_database(values[_DESC_FIELD], values[_TAG_FIELD])
                values.append(str(held[begin:at], self.encoding, "replace") if wanted else None)
            elif kind == "t":
                upto = min(at, begin + _LONGEST_NAME)
                values.append(None if value < 0 else str(held[begin:upto], self.encoding, "replace"))
        self.position = at
        return values

    def read_data_offset(self) -> int | None:
        flag = self.read_byte()
        value = int.from_bytes(self.read_bytes(self.offset_size), "little")
        if flag not in (0, 1, 2, 3):
            raise ArchiveError(f"invalid data offset flag {flag} in the table of contents", hint=_DAMAGED)
        return value if flag == 2 else None


_DAMAGED = "the archive is damaged, or was truncated when copied: compare it with the original"
_STILL_WRITTEN = "a running dump writes its table of contents after reading the catalog"


def read_toc(file: BinaryIO) -> Toc:
    """Read header and table of contents. Raises ArchiveError for other files, truncation and unknown versions."""
    bytes_ = _TocReader(file)
    bytes_.read_more()
    try:
        toc, count = _read_head(bytes_)
        entries = _read_entries(bytes_, toc, count)
    except _Truncated:
        raise ArchiveError("the archive ends within its table of contents", hint=_STILL_WRITTEN) from None
    return replace(toc, entries=entries, end=bytes_.offset, int_size=bytes_.int_size)


def _read_head(reader: _TocReader) -> tuple[Toc, int]:
    """Read the header; return it and the number of entries. A header is far shorter than the buffer."""
    if reader.read_bytes(len(MAGIC)) != MAGIC:
        raise ArchiveError("not an archive of pg_dump: it does not start with PGDMP")
    major, minor, revision = reader.read_bytes(3)
    if not OLDEST <= (major, minor) <= NEWEST:
        raise _unknown_version(major, minor)
    reader.int_size, reader.offset_size, form = reader.read_bytes(3)
    if reader.int_size not in range(1, 9) or reader.offset_size not in range(1, 9) or form not in _FORMATS:
        raise ArchiveError("the archive's header is invalid", hint=_DAMAGED)
    if (major, minor) >= (1, 15):
        method = _COMPRESSIONS.get(reader.read_byte(), "unknown")
    else:
        method = "none" if reader.read_number() == 0 else "gzip"
    second, minute, hour, day, month, year, summer = (reader.read_number() for _ in range(7))
    toc = Toc(
        version=(major, minor, revision),
        format=_FORMATS[form],
        compression=method,
        created=(year + 1900, month + 1, day, hour, minute, second, summer),
        database=reader.read_text(),
        server_version=reader.read_text(),
        dump_version=reader.read_text(),
        entries=(),
    )
    count = reader.read_number()
    if not 0 <= count <= _MOST_ENTRIES:
        raise ArchiveError(f"the archive has an invalid number of entries: {count}", hint=_DAMAGED)
    return toc, count


def _unknown_version(major: int, minor: int) -> ArchiveError:
    if (major, minor) > NEWEST:
        newer = f"archive version {major}.{minor} is not supported: the newest known is {NEWEST[0]}.{NEWEST[1]}"
        return ArchiveError(newer, hint="use pg_restore of the release that wrote it, or a later one")
    return ArchiveError(f"archive version {major}.{minor} is not supported: written by a pg_dump before 9.0", hint=None)


def _read_entries(reader: _TocReader, toc: Toc, count: int) -> tuple[DumpEntry, ...]:
    minor = toc.version[1]
    texts: dict[str, str] = {}
    entries: list[DumpEntry] = []
    for _ in range(count):
        while True:
            begin = reader.position
            try:
                entries.append(_read_entry(reader, minor, toc.format, texts))
                break
            except _Truncated:
                reader.position = begin
                if not reader.read_more():
                    raise
            except ValueError as error:
                raise ArchiveError("invalid entry in the table of contents", hint=_DAMAGED) from error
    return tuple(entries)


def _read_entry(reader: _TocReader, minor: int, form: str, texts: dict[str, str]) -> DumpEntry:
    """Read one entry; `texts` stores one copy of each text that thousands of entries share."""
    fields = reader.read_fields(_LAYOUT[min(max(minor, 13), 16)])
    dump_id, _, _, oid, tag, desc, section, statement, copy, schema, owner = fields
    needs = []
    while (need := reader.read_text()) is not None:
        needs.append(int(need))
    file, offset = None, None
    if form == "custom":
        offset = reader.read_data_offset()
    else:
        file = reader.read_text() or None
    if not isinstance(dump_id, int) or not isinstance(section, int):
        raise ValueError("not a number")  # impossible with these layouts
    desc = _interned(texts, desc) or ""
    return DumpEntry(
        dump_id=dump_id,
        desc=desc,
        phase=phase_of(desc, section),
        section=section,
        schema=_interned(texts, schema),
        tag=str(tag or ""),
        owner=_interned(texts, owner),
        oid=int(oid or 0) or None,
        file=file,
        offset=offset,
        columns=_count_columns(copy) if isinstance(copy, str) else None,
        method=_interned(texts, index_method(statement)) if desc == "INDEX" and isinstance(statement, str) else None,
        statement=statement if isinstance(statement, str) and is_of_database(desc, tag) else None,
        needs=tuple(needs),
    )


def _count_columns(statement: str) -> int | None:
    """Return the number of columns in a COPY statement.

    >>> (_count_columns('COPY public."a (b" (x, "y, (z", w) FROM stdin;'),
    ...  _count_columns('COPY public.t ("Name") FROM stdin;'))
    (3, 1)
    >>> _count_columns("COPY public.empty  FROM stdin;")
    0
    """
    match = _COPY.fullmatch(_QUOTED.sub("x", statement))
    if match is None:
        return None
    return match[1].count(",") + 1 if match[1] else 0


def is_of_database(desc: object, tag: object) -> bool:
    """Return whether an entry is the database itself, not one of its objects: restored only with --create."""
    if desc in ("DATABASE", "DATABASE PROPERTIES"):
        return True
    return desc in ("COMMENT", "ACL", "SECURITY LABEL") and isinstance(tag, str) and tag.startswith("DATABASE ")


def index_method(statement: str) -> str | None:
    """Return the method of an index as in `DumpEntry.method`.

    >>> [index_method(f"CREATE INDEX i ON public.t USING {how};") for how in (
    ...  'btree (a, "b (c" DESC)', "btree (lower(a)) WHERE (a > 1)", "gin (a gin_trgm_ops)", "btree (a) WHERE (a > 1)")]
    [None, 'expression', 'gin', None]
    """
    match = _INDEX_METHOD.search(_QUOTED.sub("x", statement))
    if match is None or match[1] != "btree":
        return None if match is None else match[1]
    return "expression" if match[2] == "(" else None


def _interned(texts: dict[str, str], value: int | str | None) -> str | None:
    """Return the single stored copy of a text."""
    return texts.setdefault(value, value) if isinstance(value, str) and value else None
