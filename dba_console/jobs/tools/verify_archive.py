"""Verify an archive by reading it completely, and compare the row counts of some tables with the database.

Reads the table of contents, here and with pg_restore, and every data file to its end. pg_restore alone ends at the
first damaged file, and accepts an uncompressed one that is truncated and one with the rows of another table (version
15). Whether the server accepts all of it, only a restore can show.
"""

from __future__ import annotations

import math
import random
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.atomic_files import open_regular
from dba_console.core.errors import ConsoleError, Unsupported
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import DumpEntry
from dba_console.jobs.tools.archive_listing import (
    DirectoryFiles,
    check_directory,
    entry_name,
    find_problems,
    large_object_text,
)
from dba_console.jobs.tools.client_programs import InstalledProgram, find_program

# Read data files to their end: decompress, verify the compression's checksum, count rows.
#
# In COPY's text format each row is one line, and a line `\.` ends the data: a file without it is truncated, even if the
# compression does not detect that.

CHUNK_BYTES = 1 << 20
_INSERT = b"INSERT INTO "
_END = b"\\.\n"


class DamagedDataError(Exception):
    """A data file cannot be read to its end; the text is the reason."""


class DataCounts(NamedTuple):
    """Size and row count of a data file."""

    bytes: int
    """Decompressed."""
    rows: int | None
    """None if it is not in COPY's text format."""
    columns: int | None = None
    """Of its first row; None without rows."""


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
        if self._in_first:  # a tab within a value is escaped as \\t
            end = piece.find(b"\n")
            self._tabs += piece.count(b"\t", 0, len(piece) if end < 0 else end)
            self._in_first = end < 0

    def result(self) -> DataCounts:
        """Return the counts. Raises DamagedDataError if the end marker is missing."""
        if self._head == _INSERT:
            return DataCounts(self.bytes, None)
        body = self._tail.rstrip(b"\n") + b"\n"
        if not (body.endswith(b"\n" + _END) or (body == _END and self.bytes <= 64)):
            raise DamagedDataError("truncated: the end marker of its rows is missing")
        after = len(self._tail) - len(self._tail.rstrip(b"\n"))
        rows = self._lines - after
        columns = (self._tabs + 1 if self._head[:1] != b"\n" else 0) if rows else None
        return DataCounts(self.bytes, rows, columns)


def count_rows(pieces: Iterable[bytes]) -> DataCounts:
    r"""Count the rows of a data file.

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
    """Yield the decompressed content of a data file. Without `compression` its suffix decides, which is not reliable
    for a compressed script. Raises DamagedDataError, OSError, or Unsupported (lz4 not installed)."""
    by_suffix = {".gz": "gzip", ".zst": "zstd", ".lz4": "lz4"}.get(path.suffix)
    reader = {"gzip": _gzip, "zstd": _zstd, "lz4": _lz4}.get(compression or by_suffix or "", _plain)
    yield from reader(path)


def _plain(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
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
        raise DamagedDataError(f"gzip data is damaged: {error}") from None
    if not begun or not inflate.eof:
        raise DamagedDataError("gzip data is truncated")


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
        raise DamagedDataError(f"zstd data is damaged: {error}") from None
    if not inflate.eof:
        raise DamagedDataError("zstd data is truncated")


def _lz4(path: Path) -> Iterator[bytes]:
    program = shutil.which("lz4")
    if program is None:
        raise Unsupported("cannot read lz4 data: program lz4 not found", hint="install lz4")
    with open_regular(path) as file:
        yield from program_output([program, "-dc"], source=file)


def program_output(
    command: list[str], environment: dict[str, str] | None = None, source: BinaryIO | None = None
) -> Iterator[bytes]:
    """Yield a program's output; it reads `source`. Raises DamagedDataError with its message if it fails."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            while piece := process.stdout.read(CHUNK_BYTES):
                yield piece
        finally:
            process.stdout.close()  # ends the program if the caller stops reading
        if process.wait() != 0:
            errors.seek(0)
            error_text = errors.read(4096).decode("utf-8", "replace").strip()
            raise DamagedDataError(error_text.splitlines()[0] if error_text else f"exit code {process.returncode}")


COUNT_S = 120.0
"""Timeout for counting the rows of one table in the database; then the number is unknown."""
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
"""Environment of pg_restore."""
_PLAIN_END = b"PostgreSQL database dump complete"

Report = Callable[[str], None]


class RowComparison(Struct, frozen=True, kw_only=True):
    """The row counts of one table in dump and database. None: not known."""

    table: str
    dumped: int | None
    now: int | None
    sentence: str


class VerifyResult(Struct, frozen=True, kw_only=True):
    """The result of the verification. `problems` empty: the archive was read to its end."""

    path: str
    format: str | None
    entries: int
    files: int
    """Data files of tables read completely."""
    large_objects: int = 0
    """Large objects read completely."""
    bytes: int
    """Decompressed."""
    problems: tuple[str, ...]
    unknown: tuple[str, ...]
    """What could not be checked, and why."""
    read_by: str | None = None
    """Version of the pg_restore that read the archive."""
    seed: int | None = None
    rows: tuple[RowComparison, ...] = ()

    @property
    def good(self) -> bool:
        return not self.problems


def verify_archive(
    path: Path, server: QueryConnection | None, sample: int, seed: int | None, *, bindir: str | None, report: Report
) -> VerifyResult:
    """Read the archive completely and compare `sample` tables with the database. Raises ArchiveError, ConsoleError."""
    plan = open_archive(path)
    if plan.format == "plain":
        return _verify_plain(path, plan)
    stored = check_directory(path, plan) if plan.format == "directory" else None
    problems = list(find_problems(path, plan) if stored is None else stored.problems)
    unknown, read = list[str](), _ReadResult()
    restore = _find_pg_restore(plan, bindir, unknown)
    if stored is not None and stored.irregular:
        restore = None
        unknown.append("pg_restore was not run: it would wait for the data of what is not a file")
    with _pg_restore_check(
        restore, path
    ) as wait_for_problems:  # both read the same files, the second reader from the page cache
        if stored is not None:
            problems += _verify_files(stored, read, report)
            unknown += [f"{name}: not a file name that pg_dump uses" for name in stored.unknown_files]
        if wait_for_problems is not None:
            report("reading the archive with pg_restore")
            read.unread.clear()
            problems += wait_for_problems()
        elif stored is None:
            read.unread.append("its data were not read: no suitable pg_restore found")
    if plan.compression != "gzip":
        unknown.append("without gzip the data have no checksum: a changed byte would not be detected in this archive")
    if stored is not None and stored.large_objects and plan.compression == "none":
        unknown.append("uncompressed large objects have no end marker: a truncated one would not be detected")
    unknown += read.unread
    chosen, used = pick_tables(plan, sample, seed)
    rows = []
    for entry in chosen if server is not None else ():
        report(f"rows of {entry_name(entry)}")
        counted = read.counts.get(entry.dump_id)
        if counted is None and restore is not None and not problems:
            counted = _count_with_pg_restore(restore, path, entry)
        rows.append(compare_rows(entry, None if counted is None else counted.rows, _rows_in_database(server, entry)))
    return VerifyResult(
        path=str(path), format=plan.format, entries=len(plan.entries), files=len(read.counts),
        large_objects=read.large_objects, bytes=sum(one.bytes for one in read.counts.values()) + read.large_bytes,
        problems=tuple(problems), unknown=tuple(unknown), read_by=None if restore is None else restore.version,
        seed=used if rows else None, rows=tuple(rows),
    )  # fmt: skip


def pick_tables(plan: DumpPlan, sample: int, seed: int | None) -> tuple[list[DumpEntry], int]:
    """Pick distinct random tables, weighted by size; return them and the seed that reproduces the selection."""
    used = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    chance = random.Random(used)
    left = [entry for entry in plan.entries if entry.desc == "TABLE DATA"]
    # Efraimidis and Spirakis 2006: the largest of u^(1/weight) are a weighted sample without replacement; by logarithm.
    keys = {entry.dump_id: math.log(1 - chance.random()) / max(1.0, entry.weight or 1.0) for entry in left}
    return sorted(left, key=lambda entry: -keys[entry.dump_id])[:sample], used


def compare_rows(entry: DumpEntry, dumped: int | None, now: int | None) -> RowComparison:
    """Compare the row counts of a table, with an explaining sentence."""
    if dumped is None:
        sentence = "rows in the dump cannot be counted in this format"
    elif now is None:
        sentence = (
            "rows in the database unknown: the table was dropped or replaced, is locked, not readable, or too large"
        )
    elif now == dumped:
        sentence = "same number in the database now"
    else:
        sentence = f"the database has {now - dumped:+,} since the dump: later changes, not an error in the dump"
    return RowComparison(table=entry_name(entry), dumped=dumped, now=now, sentence=sentence)


class _ReadResult(Struct, kw_only=True):
    """The data files read so far."""

    counts: dict[int, DataCounts] = msgspec.field(default_factory=dict)
    """Counts of tables by dump id."""
    large_objects: int = 0
    large_bytes: int = 0
    unread: list[str] = msgspec.field(default_factory=list)
    """Reasons why files could not be read."""


def _verify_files(stored: DirectoryFiles, read: _ReadResult, report: Report) -> Iterator[str]:
    """Read the data files to their end; yield problems."""
    for entry, file in stored.data:
        report(f"reading {entry_name(entry)}")
        what = f"{entry_name(entry)} ({file.name})"
        try:
            found = read.counts[entry.dump_id] = count_rows(read_decompressed(file))
        except (DamagedDataError, OSError, Unsupported) as error:
            yield from _read_problems(what, error, read)
            continue
        # A row without columns and a row with one empty column look the same.
        if found.columns and entry.columns and found.columns != entry.columns:
            yield f"{what}: its rows have {found.columns} columns, the table {entry.columns}: data of another table"
    report("reading large objects")
    for name in stored.large_objects:
        try:
            read.large_bytes += sum(len(piece) for piece in read_decompressed(stored.path / name))
            read.large_objects += 1
        except (DamagedDataError, OSError, Unsupported) as error:
            yield from _read_problems(large_object_text(name), error, read)


def _read_problems(what: str, error: DamagedDataError | OSError | Unsupported, read: _ReadResult) -> Iterator[str]:
    if isinstance(error, Unsupported):
        if error.message not in read.unread:
            read.unread.append(error.message)
    else:
        yield f"{what}: " + (f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error))


def _verify_plain(path: Path, plan: DumpPlan) -> VerifyResult:
    """Verify a plain dump: it can be read to its end, and its last lines are those of a complete dump."""
    size, tail, problems = 0, b"", []
    try:
        for piece in read_decompressed(path, plan.compression):
            size, tail = size + len(piece), (tail + piece)[-4096:]
        if _PLAIN_END not in tail and b"PostgreSQL database cluster dump complete" not in tail:
            problems.append("truncated: its final line is missing")
    except (DamagedDataError, OSError) as error:
        problems.append(f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error))
    return VerifyResult(
        path=str(path), format="plain", entries=0, files=1, bytes=size, problems=tuple(problems),
        unknown=("a plain dump has no table of contents: it was only read to its end",),
    )  # fmt: skip


def _find_pg_restore(plan: DumpPlan, bindir: str | None, unknown: list[str]) -> InstalledProgram | None:
    named = re.match(r"[0-9]{1,3}(?![0-9])", plan.dump_version or "")
    major = int(named[0]) if named else 0
    try:
        return find_program("pg_restore", at_least=min(major, 99), bindir=bindir)
    except ConsoleError as error:
        unknown.append(error.message)
        return None


@contextmanager
def _pg_restore_check(program: InstalledProgram | None, path: Path) -> Iterator[Callable[[], list[str]] | None]:
    """Run pg_restore on the archive in parallel. Yields a function that waits for it and returns its problems, None
    without a program. pg_restore is terminated at the end."""
    if program is None:
        yield None
        return
    command = [program.path, "-f", "/dev/null", str(path)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=ENVIRONMENT
        ) as process,
    ):

        def wait_for_problems() -> list[str]:
            if process.wait() == 0:
                return []
            errors.seek(0)
            text = errors.read(4096).decode("utf-8", "replace").strip() or f"exit code {process.returncode}"
            return [f"pg_restore failed: {clean(text.splitlines()[0])}"]

        try:
            yield wait_for_problems
        finally:
            process.terminate()


def _count_with_pg_restore(program: InstalledProgram, path: Path, entry: DumpEntry) -> DataCounts | None:
    """Count the rows of one table with pg_restore, selected by dump id because names may be ambiguous."""
    with tempfile.NamedTemporaryFile("w", prefix="dba-console-list-") as chosen:
        chosen.write(f"{entry.dump_id}; 0 0 TABLE DATA x x x\n")
        chosen.flush()
        command = [program.path, "-L", chosen.name, "-f", "-", str(path)]
        try:
            return count_rows(_copy_rows(program_output(command, ENVIRONMENT)))
        except DamagedDataError:
            return None


def _copy_rows(pieces: Iterator[bytes]) -> Iterator[bytes]:
    r"""Yield the data between COPY … FROM stdin; and its end marker.

    >>> b"".join(_copy_rows(iter([b"SET a;\nCOPY t (a) FROM ", b"stdin;\n1\n2\n\\.\n", b"\n\n--\n"])))
    b'1\n2\n\\.\n'
    """
    rest, inside = b"", False
    for piece in pieces:
        rest += piece
        if not inside:
            at = rest.find(b" FROM stdin;\n")
            if at < 0:
                continue
            rest, inside = rest[at + len(b" FROM stdin;\n") :], True
        end = 0 if rest.startswith(b"\\.\n") else rest.find(b"\n\\.\n")
        if end >= 0:
            yield rest[: end + (3 if end == 0 and rest.startswith(b"\\.\n") else 4)]
            return
        yield rest[:-3]
        rest = rest[-3:]


def _rows_in_database(server: QueryConnection | None, entry: DumpEntry) -> int | None:
    """Count the rows of a table in the database; None if that fails."""
    if server is None or entry.schema is None:
        return None
    try:
        return server.count_rows(entry.schema, entry.tag, timeout_s=COUNT_S)
    except ConsoleError:
        return None


def result_lines(found: VerifyResult) -> list[str]:
    """Return the result as text lines."""
    from dba_console.core.units import human_bytes

    how = "" if found.read_by is None else f" by pg_restore {found.read_by}"
    if found.files or found.large_objects:
        large = f", {found.large_objects} large objects" if found.large_objects else ""
        how += f": {found.files} data files{large}, {human_bytes(found.bytes)} decompressed"
    lines = [f"{found.path}: {found.format or '?'}, {found.entries} objects, read to its end{how}"]
    if found.problems:
        lines = [f"{found.path}: verification failed", *(f"problem: {problem}" for problem in found.problems)]
    lines += [f"not checked: {one}" for one in found.unknown]
    lines += [f"{row.table}: {_count_text(row.dumped)} rows in the dump; {row.sentence}" for row in found.rows]
    if found.seed is not None:
        lines.append(f"tables chosen at random, weighted by size: --seed {found.seed} repeats this selection")
    return lines


def _count_text(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"
