"""What is to be dumped or restored, object by object: the plan that everything else counts against."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Phase = Literal["schema", "data", "indexes", "constraints", "rest"]
PHASES: tuple[Phase, ...] = ("schema", "data", "indexes", "constraints", "rest")
"""In the order in which they are begun; with -j the later ones overlap. `schema`: everything before the data;
`indexes`: INDEX, and CONSTRAINT of a primary key, unique or exclusion constraint, which builds one; `constraints`:
foreign keys and checks validated after the data; `rest`: triggers, rights, comments, views filled, statistics."""


class DumpEntry(Struct, frozen=True, kw_only=True, gc=False):
    """One object of an archive's table of contents, or a table of a dump that writes none."""

    dump_id: int
    """As `finished item ID` and the name of a data file have it; counted from 1 where there is no archive."""
    desc: str
    """As pg_restore -l words it: TABLE DATA, INDEX, FK CONSTRAINT, …"""
    phase: Phase
    schema: str | None = None
    tag: str = ""
    """The name as the archive has it: of a constraint or trigger `TABLE NAME`. Server text: clean() before it
    is shown."""
    owner: str | None = None
    oid: int | None = None
    """Of the object in the database that was dumped."""
    file: str | None = None
    """Of a directory archive: the file of its data, without suffix of compression."""
    offset: int | None = None
    """Of a custom archive: where its data begins, bytes; None where the archive does not know."""
    columns: int | None = None
    """Of its data in COPY's form; None: not known."""
    weight: float | None = None
    """Bytes of its data: on the side of a dump the table's pages with TOAST, on the side of a restore what it takes in
    the archive. An index, key or constraint has that of its table's data, a foreign key the mean of its two.
    None: not known; 0: none."""
    rows: float | None = None
    """Of a table, as estimated where it was dumped."""
    table: int | None = None
    """Dump id of the TABLE DATA it belongs to, itself included; None for what belongs to none."""
    needs: tuple[int, ...] = ()
    """Dump ids it depends on."""


class DumpPlan(Struct, frozen=True, kw_only=True):
    """All of it, in the archive's order."""

    entries: tuple[DumpEntry, ...]
    format: str | None = None
    """directory, custom, tar, plain."""
    compression: str | None = None
    """gzip, lz4, zstd, none."""
    database: str | None = None
    """That was dumped."""
    server_version: str | None = None
    dump_version: str | None = None
    """Of the pg_dump that wrote it."""
    created_us: int | None = None
