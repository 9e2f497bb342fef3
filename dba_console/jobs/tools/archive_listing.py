"""List an archive's contents and check that its files are complete, by its table of contents and a directory scan."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from dba_console.core.atomic_files import open_regular
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.critical_path import critical_path
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import COMPRESSION_SUFFIXES, PHASES, ArchiveError, DumpEntry

# Compare the files of a directory dump with its toc.dat and its lists of large objects.
#
# pg_dump writes toc.dat, one file for each table's data, one for each large object, and lists of large objects:
# `blobs.toc` up to version 16, from 17 on one `blobs_ID.toc` for each group, all named in toc.dat.

SUFFIXES = ("", *COMPRESSION_SUFFIXES)
CLOCK_TOLERANCE_S = 60.0
"""A file written this long before the dump started belongs to another dump; clocks of a file server may differ by
less."""
_MAX_PROBLEMS = 10
"""Problems listed per kind; the others are only counted."""
_TOC = "toc.dat"
_OF_PG_DUMP = re.compile(r"(\d+\.dat|blob_\d+\.dat|blobs(_\d+)?\.toc|toc\.dat)(\.gz|\.lz4|\.zst)?")
_LISTED = re.compile(rb"(\d+) (blob_\d+\.dat)\n?")


class DirectoryFiles(Struct, frozen=True, kw_only=True):
    """The files of a directory dump."""

    path: Path
    data: tuple[tuple[DumpEntry, Path], ...]
    """Tables whose data file exists."""
    large_objects: tuple[str, ...]
    """File names of the existing large objects; where a list is missing, also unlisted ones."""
    problems: tuple[str, ...]
    unknown_files: tuple[str, ...]
    """Names that pg_dump does not use, sanitized."""
    irregular: bool = False
    """Whether a file of the dump is a pipe, a device or a directory."""


class _UnclaimedFiles:
    """The regular files of a directory that no entry has named yet."""

    def __init__(self, path: Path) -> None:
        with os.scandir(path) as found:
            entries = list(found)
        self.unclaimed = {one.name for one in entries if one.is_file()}
        self.irregular = sorted(
            one.name for one in entries if one.name not in self.unclaimed and _OF_PG_DUMP.fullmatch(one.name)
        )
        self.unclaimed.discard(_TOC)

    def claim(self, stem: str) -> str | None:
        """Return the file with that name, compressed or not, as pg_restore would choose it."""
        for suffix in SUFFIXES:
            if (name := stem + suffix) in self.unclaimed:
                self.unclaimed.remove(name)
                return name
        return None


def check_directory(path: Path, plan: DumpPlan) -> DirectoryFiles:
    """Compare the directory at `path` with its plan. Raises ArchiveError if it cannot be read or a file disappears
    meanwhile; PermissionError."""
    try:
        return _compare(path, plan)
    except PermissionError:
        raise
    except OSError as error:
        hint = "is this dump being removed or replaced?" if isinstance(error, FileNotFoundError) else None
        where = clean(str(error.filename or path))
        raise ArchiveError(f"{where} cannot be read: {error.strerror or error}", hint=hint) from None


def _compare(path: Path, plan: DumpPlan) -> DirectoryFiles:
    files, problems = _UnclaimedFiles(path), list[str]()
    data, lists, unlisted = list[tuple[DumpEntry, Path]](), list[tuple[DumpEntry, Path]](), False
    for entry in plan.entries:
        if entry.file is None:
            continue
        name = files.claim(entry.file)
        large = entry.desc == "BLOBS"
        if name is None:
            unlisted = unlisted or large
            problems.append(f"{_entry_text(entry)}: file {clean(entry.file)} is missing")
        else:
            (lists if large else data).append((entry, path / name))
    found, missing = list[str](), list[str]()
    for entry, file in lists:
        try:
            oids = _read_list(file, files, found, missing)
        except (OSError, ValueError) as error:
            unlisted = True
            problems.append(f"large objects ({file.name}): {_error_text(error)}")
        else:
            problems += _list_problems(entry, file, oids, plan)
    problems += _first_problems([f"large object {one}: file blob_{one}.dat is missing" for one in missing])
    if unlisted:
        loose = sorted(name for name in files.unclaimed if name.startswith("blob_"))
        files.unclaimed.difference_update(loose)
        found += loose
    foreign = sorted(name for name in files.unclaimed if _OF_PG_DUMP.fullmatch(name))
    problems += _first_problems(
        [f"{clean(name)}: not listed in this dump: the file belongs to another dump" for name in foreign]
    )
    problems += _first_problems([f"{clean(name)}: not a regular file" for name in files.irregular])
    everything = [*data, *lists, *((None, path / name) for name in found)]
    problems += _first_problems(_older_files(path, plan, everything))
    unknown = sorted(clean(name) for name in files.unclaimed.difference(foreign))
    return DirectoryFiles(
        path=path,
        data=tuple(data),
        large_objects=tuple(found),
        problems=tuple(problems),
        unknown_files=tuple(unknown),
        irregular=bool(files.irregular),
    )


def large_object_text(file: str) -> str:
    """Return the name of a large object, from its file name.

    >>> large_object_text("blob_16400.dat.gz")
    'large object 16400 (blob_16400.dat.gz)'
    """
    return f"large object {file.removeprefix('blob_').partition('.')[0]} ({clean(file)})"


def entry_name(entry: DumpEntry) -> str:
    """Return the entry's name with its schema, sanitized."""
    return clean(f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag)


def _entry_text(entry: DumpEntry) -> str:
    return "large objects" if entry.desc == "BLOBS" else entry_name(entry)


def _read_list(file: Path, files: _UnclaimedFiles, found: list[str], missing: list[str]) -> set[int]:
    """Return the large objects in a list. Raises ValueError if it is not a list or its last line is incomplete."""
    oids = set[int]()
    with open_regular(file) as lines:
        for line in lines:
            match = _LISTED.fullmatch(line)
            if match is None or not line.endswith(b"\n"):
                raise ValueError("it is truncated, or not a list of large objects")
            oids.add(int(match[1]))
            name = files.claim(match[2].decode())
            if name is None:
                missing.append(match[1].decode())
            else:
                found.append(name)
    return oids


def _list_problems(entry: DumpEntry, file: Path, oids: set[int], plan: DumpPlan) -> list[str]:
    """Check that a list belongs to this dump: up to 16 each large object has its own entry (except in a data-only
    dump), from 17 on the list's entry is named after its first and last one."""
    if (ends := re.fullmatch(r"(\d+)(?:\.\.(\d+))?", entry.tag)) is not None:
        known = {int(one) for one in ends.groups() if one is not None}
        unknown = {one for one in oids if not min(known) <= one <= max(known)}
    else:
        known = {one.oid for one in plan.entries if one.desc == "BLOB" and one.oid is not None}
        unknown = oids - known if known else set()
    lost = [f"large object {one}: missing in {file.name}: the list is truncated or belongs to another dump" for one in
            sorted(known - oids)]  # fmt: skip
    added = [f"large object {one}: listed in {file.name} but not in toc.dat: it belongs to another dump" for one in
             sorted(unknown)]  # fmt: skip
    return [*_first_problems(lost), *_first_problems(added)]


def _older_files(path: Path, plan: DumpPlan, everything: list[tuple[DumpEntry | None, Path]]) -> list[str]:
    """Report files older than the dump. The start of the dump is the earlier of two times: the age of toc.dat, which
    is written first, and the time in its header, which is the dumping host's clock in a time zone that may differ.
    Copying only makes files newer."""
    if plan.created_us is None:
        return []
    began = min(plan.created_us / 1e6, (path / _TOC).stat().st_mtime)
    problems = []
    for entry, file in everything:
        if (written := file.stat().st_mtime) < began - CLOCK_TOLERANCE_S:
            what = f"{_entry_text(entry)} ({file.name})" if entry is not None else large_object_text(file.name)
            problems.append(
                f"{what}: written {_time_text(written)}, before this dump started ({_time_text(began)}): it belongs to "
                f"another dump"
            )
    return problems


def _time_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _error_text(error: OSError | ValueError) -> str:
    return f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _first_problems(problems: list[str]) -> list[str]:
    more = len(problems) - _MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:_MAX_PROBLEMS], f"and {more} more of this kind"]


MAX_TABLES = 20
"""Largest tables listed."""
_BUILT_IN = ("plpgsql",)


class ArchiveListing(Struct, frozen=True, kw_only=True):
    """The contents of an archive. Texts are sanitized; None: not recorded in the archive."""

    path: str
    format: str | None
    compression: str | None
    database: str | None
    server_version: str | None
    dump_version: str | None
    created: str | None
    entries: int
    phases: dict[str, int]
    """Number of objects per phase."""
    data_bytes: int | None
    """Size of the data in the archive."""
    tables: int
    biggest: tuple[tuple[str, float | None], ...]
    """Tables with the size of their data in the archive, largest first."""
    extensions: tuple[str, ...]
    owners: tuple[str, ...]
    database_statements: tuple[str, ...]
    """What belongs to the database itself, secrets masked: only `pg_restore --create` restores it."""
    critical: tuple[str, ...]
    """The dependency chain that sets the minimum restore time: a table, its indexes, its keys."""
    problems: tuple[str, ...]
    """Missing files, and files that are not part of this dump."""


def read_listing(path: Path) -> ArchiveListing:
    """Read an archive's table of contents. Raises ArchiveError if the file is missing or not a readable archive."""
    plan = open_archive(path)
    data = [entry for entry in plan.entries if entry.desc == "TABLE DATA"]
    known = [entry.weight for entry in plan.entries if entry.phase == "data" and entry.weight is not None]
    biggest = sorted(data, key=lambda entry: -(entry.weight or 0))[:MAX_TABLES]
    counts = Counter(entry.phase for entry in plan.entries)
    return ArchiveListing(
        path=str(path), format=plan.format, compression=plan.compression, database=plan.database,
        server_version=plan.server_version, dump_version=plan.dump_version, created=_created_text(plan),
        entries=len(plan.entries), phases={phase: counts[phase] for phase in PHASES if counts[phase]},
        data_bytes=int(sum(known)) if known else None, tables=len(data),
        biggest=tuple((entry_name(entry), entry.weight) for entry in biggest),
        extensions=_extensions(plan),
        owners=tuple(sorted({clean(one.owner) for one in plan.entries if one.owner})),
        database_statements=_database_statements(plan),
        critical=_critical_path_names(plan), problems=find_problems(path, plan),
    )  # fmt: skip


def _database_statements(plan: DumpPlan) -> tuple[str, ...]:
    owner = () if plan.database_owner is None else (f"owner {clean(plan.database_owner)}",)
    texts = (text for text in plan.database_statements if not text.startswith("CREATE DATABASE"))
    lines = (
        line for text in texts for line in redact(text).splitlines() if line and " SESSION AUTHORIZATION" not in line
    )
    return (*owner, *(clean(line) for line in lines))


def _extensions(plan: DumpPlan) -> tuple[str, ...]:
    return tuple(clean(one.tag) for one in plan.entries if one.desc == "EXTENSION" and one.tag not in _BUILT_IN)


def find_problems(path: Path, plan: DumpPlan) -> tuple[str, ...]:
    """Return missing data and files of other dumps, one line each. Raises ArchiveError, OSError."""
    if plan.format == "directory":
        return check_directory(path, plan).problems
    if plan.format == "custom":
        size = os.stat(path).st_size
        return tuple(
            f"{entry_name(entry)}: its data start beyond the end of the file"
            for entry in plan.entries
            if entry.offset is not None and entry.offset >= size
        )
    return ()


def _created_text(plan: DumpPlan) -> str | None:
    if plan.created_us is None:
        return None
    return datetime.fromtimestamp(plan.created_us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def _critical_path_names(plan: DumpPlan) -> tuple[str, ...]:
    return tuple(f"{entry.desc} {entry_name(entry)}" for entry in critical_path(plan))


def listing_lines(found: ArchiveListing) -> list[str]:
    """Return the listing as text lines, without the largest tables."""
    lines = [
        f"{found.path}: {found.format or '?'}, compression {found.compression or '?'}",
        f"database {clean(found.database or '?')}, server {found.server_version or '?'}, "
        f"pg_dump {found.dump_version or '?'}, {found.created or 'time unknown'}",
    ]
    if found.format == "plain":
        lines.append("a plain SQL script has no table of contents: its contents are unknown without running it")
    else:
        phases = ", ".join(f"{name} {count}" for name, count in found.phases.items())
        lines.append(f"{found.entries} objects: {phases or 'none'}")
        lines.append(f"{found.tables} tables with data, {human_bytes(found.data_bytes)} in the archive")
    if found.extensions:
        lines.append(f"extensions: {', '.join(found.extensions)}")
    if found.owners:
        lines.append(f"owners: {', '.join(found.owners)}")
    if found.database_statements:
        lines.append(
            "of the database itself, not restored without pg_restore --create (the runbook restore can set it):"
        )
        lines += [f"  {text}" for text in found.database_statements]
    if found.critical:
        lines.append("critical path, estimated by sizes: " + " → ".join(found.critical))
    return [*lines, *(f"problem: {problem}" for problem in found.problems)]
