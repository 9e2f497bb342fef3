"""Whether an archive can be restored from, as far as reading it tells; and a sample of its rows beside the database's.

A dump that was never read is a hope. What is read here: its table of contents by us and by pg_restore, every data file
to its end. What only a restore tells, whether the server takes it all, is not promised.
"""

from __future__ import annotations

import math
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from dba_console.archives.entries import Entry, Plan
from dba_console.archives.place import open_archive
from dba_console.dumping.listing import problems_of
from dba_console.dumping.programs import Program, find_program
from dba_console.dumping.reading import Counted, Damaged, count_rows, output_of, read_to_end
from dba_console.dumping.server import Server
from dba_console.dumping.stored import Stored, large_object, name_of, stored_files
from dba_console.errors import ConsoleError, Unsupported
from dba_console.harmless import clean

COUNT_S = 120.0
"""For the rows of one table in the database; beyond it they are not known."""
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
"""Of pg_restore."""
_PLAIN_END = b"PostgreSQL database dump complete"

Told = Callable[[str], None]


class Compared(Struct, frozen=True, kw_only=True):
    """The rows of one table. None: not known."""

    table: str
    dumped: int | None
    now: int | None
    sentence: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What came of it. `problems` empty: it reads to its end."""

    path: str
    format: str | None
    entries: int
    files: int
    """Data files of tables read to their end here."""
    large_objects: int = 0
    """Read to their end here."""
    bytes: int
    """Decompressed."""
    problems: tuple[str, ...]
    unknown: tuple[str, ...]
    """What could not be looked at, and why."""
    read_by: str | None = None
    """The pg_restore that read all of it."""
    seed: int | None = None
    rows: tuple[Compared, ...] = ()

    @property
    def good(self) -> bool:
        return not self.problems


def verify(
    path: Path, server: Server | None, sample: int, seed: int | None, *, bindir: str | None, told: Told
) -> Verdict:
    """Read all of it, and compare `sample` tables with the server's database. Raises ArchiveError, ConsoleError."""
    plan = open_archive(path)
    if plan.format == "plain":
        return _plain(path, plan)
    stored = stored_files(path, plan) if plan.format == "directory" else None
    problems = list(problems_of(path, plan) if stored is None else stored.problems)
    unknown, read = list[str](), _Read()
    restore = _restore_program(plan, bindir, unknown)
    with _beside(restore, path) as said:  # both read the same files: the second one from the page cache
        if stored is not None:
            problems += _files(stored, read, told)
            unknown += [f"{name}: pg_dump writes no file of that name" for name in stored.strangers]
        if said is not None:
            told("pg_restore reads all of it")
            read.unread.clear()
            problems += said()
        elif stored is None:
            read.unread.append("its data were not read: there is no pg_restore here that can")
    if plan.compression != "gzip":
        unknown.append(
            "only gzip keeps a checksum of the data: a byte that was changed would not be noticed in this one"
        )
    if stored is not None and stored.large and plan.compression == "none":
        unknown.append("large objects that are not compressed have no end mark: one that was cut would not be noticed")
    unknown += read.unread
    chosen, used = picked(plan, sample, seed)
    rows = []
    for entry in chosen if server is not None else ():
        told(f"rows of {name_of(entry)}")
        counted = read.counts.get(entry.dump_id)
        if counted is None and restore is not None and not problems:
            counted = _by_restore(restore, path, entry)
        rows.append(compared(entry, None if counted is None else counted.rows, _now(server, entry), plan))
    return Verdict(
        path=str(path), format=plan.format, entries=len(plan.entries), files=len(read.counts),
        large_objects=read.large, bytes=sum(one.bytes for one in read.counts.values()) + read.large_bytes,
        problems=tuple(problems), unknown=tuple(unknown), read_by=None if restore is None else restore.version,
        seed=used if rows else None, rows=tuple(rows),
    )  # fmt: skip


def picked(plan: Plan, sample: int, seed: int | None) -> tuple[list[Entry], int]:
    """Tables at random, the likelier the more data they have, none twice; and the seed that picks them again."""
    used = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    chance = random.Random(used)
    left = [entry for entry in plan.entries if entry.desc == "TABLE DATA"]
    # Efraimidis and Spirakis 2006: the largest of u^(1/weight) are a weighted sample without replacement; by logarithm.
    keys = {entry.dump_id: math.log(1 - chance.random()) / max(1.0, entry.weight or 1.0) for entry in left}
    return sorted(left, key=lambda entry: -keys[entry.dump_id])[:sample], used


def compared(entry: Entry, dumped: int | None, now: int | None, plan: Plan) -> Compared:
    """What the two numbers mean beside each other."""
    if dumped is None:
        sentence = "the dump holds it in a form in which rows are not counted"
    elif now is None:
        sentence = (
            "the database's rows are not known: the table is gone, locked, not readable, or too large to count now"
        )
    elif now == dumped:
        sentence = "as many as in the database now"
    else:
        since = "" if plan.created_us is None else " of that time"
        sentence = f"the database has {now - dumped:+,} since the dump{since}: it has gone on, which is no fault of it"
    return Compared(table=name_of(entry), dumped=dumped, now=now, sentence=sentence)


class _Read(Struct, kw_only=True):
    """What was read here."""

    counts: dict[int, Counted] = msgspec.field(default_factory=dict)
    """Data of tables by dump id."""
    large: int = 0
    large_bytes: int = 0
    unread: list[str] = msgspec.field(default_factory=list)
    """Why some of it could not be."""


def _files(stored: Stored, read: _Read, told: Told) -> Iterator[str]:
    """Read them to their end; what is wrong."""
    for entry, file in stored.data:
        told(f"reading {name_of(entry)}")
        what = f"{name_of(entry)} ({file.name})"
        try:
            found = read.counts[entry.dump_id] = count_rows(read_to_end(file))
        except (Damaged, OSError, Unsupported) as error:
            yield from _unreadable(what, error, read)
            continue
        # A row of no column and one of one empty column look the same.
        if found.columns and entry.columns and found.columns != entry.columns:
            yield f"{what}: its rows have {found.columns} columns, the table {entry.columns}: it is of another table"
    told("reading large objects")
    for name in stored.large:
        try:
            read.large_bytes += sum(len(piece) for piece in read_to_end(stored.path / name))
            read.large += 1
        except (Damaged, OSError, Unsupported) as error:
            yield from _unreadable(large_object(name), error, read)


def _unreadable(what: str, error: Damaged | OSError | Unsupported, read: _Read) -> Iterator[str]:
    if isinstance(error, Unsupported):
        if error.message not in read.unread:
            read.unread.append(error.message)
    else:
        yield f"{what}: " + (f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error))


def _plain(path: Path, plan: Plan) -> Verdict:
    """A script: it reads to its end, and its last words are those of a whole one."""
    size, tail, problems = 0, b"", []
    try:
        for piece in read_to_end(path, plan.compression):
            size, tail = size + len(piece), (tail + piece)[-4096:]
        if _PLAIN_END not in tail and b"PostgreSQL database cluster dump complete" not in tail:
            problems.append("its last words are missing: it was cut short")
    except (Damaged, OSError) as error:
        problems.append(f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error))
    return Verdict(
        path=str(path), format="plain", entries=0, files=1, bytes=size, problems=tuple(problems),
        unknown=("a plain dump has no table of contents: only that it reads to its end was looked at",),
    )  # fmt: skip


def _restore_program(plan: Plan, bindir: str | None, unknown: list[str]) -> Program | None:
    major = int((plan.dump_version or "0").split(".")[0].rstrip("abcdefghijklmnopqrstuvwxyz") or 0)
    try:
        return find_program("pg_restore", at_least=min(major, 99), bindir=bindir)
    except ConsoleError as error:
        unknown.append(error.message)
        return None


@contextmanager
def _beside(program: Program | None, path: Path) -> Iterator[Callable[[], list[str]] | None]:
    """pg_restore reads the archive to its end meanwhile: gives what waits for it and tells what it says is wrong. Where
    that is not waited for, it is ended."""
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

        def said() -> list[str]:
            if process.wait() == 0:
                return []
            errors.seek(0)
            words = errors.read(4096).decode("utf-8", "replace").strip() or f"it ended with exit {process.returncode}"
            return [f"pg_restore says: {clean(words.splitlines()[0])}"]

        try:
            yield said
        finally:
            process.terminate()


def _by_restore(program: Program, path: Path, entry: Entry) -> Counted | None:
    """The rows of one table as pg_restore prints them, picked by its dump id: names may be of several tables."""
    with tempfile.NamedTemporaryFile("w", prefix="dba-console-list-") as chosen:
        chosen.write(f"{entry.dump_id}; 0 0 TABLE DATA x x x\n")
        chosen.flush()
        command = [program.path, "-L", chosen.name, "-f", "-", str(path)]
        try:
            return count_rows(_copied(output_of(command, ENVIRONMENT)))
        except Damaged:
            return None


def _copied(pieces: Iterator[bytes]) -> Iterator[bytes]:
    r"""What stands between COPY … FROM stdin; and its end.

    >>> b"".join(_copied(iter([b"SET a;\nCOPY t (a) FROM ", b"stdin;\n1\n2\n\\.\n", b"\n\n--\n"])))
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


def _now(server: Server | None, entry: Entry) -> int | None:
    """Rows of the table in the database, None where that cannot be had."""
    if server is None or entry.schema is None:
        return None
    try:
        return server.count(entry.schema, entry.tag, COUNT_S)
    except ConsoleError:
        return None


def verdict_words(found: Verdict) -> list[str]:
    """It as lines."""
    from dba_console.units import human_bytes

    how = "" if found.read_by is None else f" by pg_restore {found.read_by}"
    if found.files or found.large_objects:
        large = f", {found.large_objects} large objects" if found.large_objects else ""
        how += f": {found.files} data files{large}, {human_bytes(found.bytes)} decompressed"
    lines = [f"{found.path}: {found.format or '?'}, {found.entries} objects, read to its end{how}"]
    if found.problems:
        lines = [f"{found.path}: it cannot be relied on", *(f"problem: {problem}" for problem in found.problems)]
    lines += [f"not looked at: {one}" for one in found.unknown]
    lines += [f"{row.table}: {_count(row.dumped)} rows in the dump; {row.sentence}" for row in found.rows]
    if found.seed is not None:
        lines.append(f"tables chosen at random, the likelier the larger: --seed {found.seed} chooses them again")
    return lines


def _count(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"
