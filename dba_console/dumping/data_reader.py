"""Data of an archive read to their end: decompressed, checked by what the compression keeps for it, rows counted.

In COPY's text form a row is a line, whatever it holds, and `\\.` on a line of its own ends it: a file that stops before
that was cut, also where its compression did not notice.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dba_console.errors import Unsupported

CHUNK_BYTES = 1 << 20
_INSERT = b"INSERT INTO "
_END = b"\\.\n"


class DamagedDataError(Exception):
    """The file does not read to its end; the text says why."""


class DataCounts(NamedTuple):
    """What a data file holds."""

    bytes: int
    """Decompressed."""
    rows: int | None
    """None where it has no rows in COPY's form."""
    columns: int | None = None
    """Of its first row; None where it has no row."""


class RowCounter:
    """Counts the rows of data fed to it piece by piece."""

    def __init__(self) -> None:
        self.bytes = self._lines = 0
        self._head, self._tail = b"", b""
        self._tabs, self._in_first = 0, True

    def feed(self, piece: bytes) -> None:
        self.bytes += len(piece)
        self._lines += piece.count(b"\n")
        if len(self._head) < len(_INSERT):
            self._head = (self._head + piece)[: len(_INSERT)]
        self._tail = (self._tail + piece)[-64:]
        if self._in_first:  # a tab within a value is written as \\t
            end = piece.find(b"\n")
            self._tabs += piece.count(b"\t", 0, len(piece) if end < 0 else end)
            self._in_first = end < 0

    def result(self) -> DataCounts:
        """The rows. Raises Damaged where what should end them is missing."""
        if self._head == _INSERT:
            return DataCounts(self.bytes, None)
        body = self._tail.rstrip(b"\n") + b"\n"
        if not (body.endswith(b"\n" + _END) or (body == _END and self.bytes <= 64)):
            raise DamagedDataError("its rows have no end: it was cut short")
        after = len(self._tail) - len(self._tail.rstrip(b"\n"))
        rows = self._lines - after
        columns = (self._tabs + 1 if self._head[:1] != b"\n" else 0) if rows else None
        return DataCounts(self.bytes, rows, columns)


def count_rows(pieces: Iterable[bytes]) -> DataCounts:
    r"""Rows of a data file.

    >>> count_rows([b"1\ta\n2\tb\\nc\n\\", b".\n\n\n"])
    DataCounts(bytes=16, rows=2, columns=2)
    >>> count_rows([b"\\.\n\n\n"]).rows
    0
    """
    count = RowCounter()
    for piece in pieces:
        count.feed(piece)
    return count.result()


def read_decompressed(path: Path, compression: str | None = None) -> Iterator[bytes]:
    """The decompressed content of a data file, by its suffix where its compression is not given: of a script that
    somebody has packed the name tells nothing. Raises Damaged, OSError, or Unsupported (no lz4 here)."""
    by_suffix = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4"}.get(path.suffix)
    reader = {"gzip": _gzip, "zstd": _zstd, "lz4": _lz4}.get(compression or by_suffix or "", _plain)
    yield from reader(path)


def _plain(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _gzip(path: Path) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=31)
    begun = False
    try:
        for piece in _plain(path):
            begun, left = True, piece
            while left:
                if inflate.eof:
                    inflate = zlib.decompressobj(wbits=31)
                data = inflate.decompress(left, CHUNK_BYTES * 4)
                left = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                if data:
                    yield data
    except zlib.error as error:
        raise DamagedDataError(f"its gzip data are damaged: {error}") from None
    if not begun or not inflate.eof:
        raise DamagedDataError("its gzip data is truncated: it was cut short")


def _zstd(path: Path) -> Iterator[bytes]:
    import zstandard

    inflate = zstandard.ZstdDecompressor().decompressobj()
    try:
        for piece in _plain(path):
            left = piece
            while left:
                if inflate.eof:
                    inflate = zstandard.ZstdDecompressor().decompressobj()
                data = inflate.decompress(left)
                left = inflate.unused_data if inflate.eof else b""
                if data:
                    yield data
    except zstandard.ZstdError as error:
        raise DamagedDataError(f"its zstd data are damaged: {error}") from None
    if not inflate.eof:
        raise DamagedDataError("its zstd data is truncated: it was cut short")


def _lz4(path: Path) -> Iterator[bytes]:
    program = shutil.which("lz4")
    if program is None:
        raise Unsupported("there is no lz4 program to read it with", hint="install lz4")
    yield from program_output([program, "-dc", str(path)])


def program_output(command: list[str], environment: dict[str, str] | None = None) -> Iterator[bytes]:
    """What a program prints. Raises Damaged with its own words where it fails."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            while piece := process.stdout.read(CHUNK_BYTES):
                yield piece
        finally:
            process.stdout.close()  # whoever stops reading ends it
        if process.wait() != 0:
            errors.seek(0)
            error_text = errors.read(4096).decode("utf-8", "replace").strip()
            raise DamagedDataError(
                error_text.splitlines()[0] if error_text else f"it ended with exit {process.returncode}"
            )
