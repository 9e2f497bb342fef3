"""What is read about disks: file systems, sizes of databases, temporary files."""

from __future__ import annotations

from msgspec import Struct

from dba_console.watch.part import DatabaseName, PartKind, Query, ServerPart, TablespaceName
from dba_console.watch.samples import host


class DatabaseSize(Struct, array_like=True, frozen=True, gc=False):
    name: DatabaseName
    bytes: int | None


class Sizes(Struct, array_like=True, frozen=True):
    rows: list[DatabaseSize]


class TempDirectory(Struct, array_like=True, frozen=True, gc=False):
    """Temporary files of one backend in one tablespace, as pg_ls_tmpdir() lists them: not the directories with files of
    parallel workers."""

    tablespace: TablespaceName
    pid: int | None
    """Their backend, from the file name; None if not in the name."""
    files: int
    bytes: int


class TempFiles(Struct, array_like=True, frozen=True):
    """Temporary files now open, the largest first."""

    rows: list[TempDirectory]
    closed_bytes: int | None = None
    """temp_bytes of pg_stat_database over all databases: bytes of files already closed."""


PARTS = (
    PartKind("host.mounts", host.Mounts, 5, "file systems and what they hold"),
    ServerPart(
        "pg.sizes",
        Sizes,
        every_s=300,
        meaning="database sizes",
        queries=(Query("size_names"), Query("sizes", in_batches=True)),
    ),
    ServerPart(
        "pg.temp",
        TempFiles,
        every_s=5,
        meaning="temporary files on disk",
        queries=(Query("temp", rows="rows"), Query("temp_closed", missing="temporary files written before")),
    ),
)
