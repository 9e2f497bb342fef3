"""The files of a directory dump, against those that its toc.dat and its lists of large objects name.

pg_dump writes toc.dat, then one file for each table's data, one for each large object, and a list of these: `blobs.toc`
up to version 16, from 17 on one `blobs_ID.toc` for each group, all of them named in toc.dat.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from dba_console.archives.dump_plan import DumpEntry, DumpPlan
from dba_console.archives.toc import ArchiveError
from dba_console.sanitize import clean

SUFFIXES = ("", ".gz", ".lz4", ".zst")
"""In the order in which pg_restore looks for them."""
CLOCK_TOLERANCE_S = 60.0
"""A file written this long before the dump began is not of it: clocks of a file server may differ by less."""
_MAX_PROBLEMS = 10
"""Large objects named in one verdict; of the others the number is given."""
_TOC = "toc.dat"
_OF_PG_DUMP = re.compile(r"(\d+\.dat|blob_\d+\.dat|blobs(_\d+)?\.toc|toc\.dat)(\.gz|\.lz4|\.zst)?")
_LISTED = re.compile(rb"(\d+) (blob_\d+\.dat)\n?")


class DirectoryFiles(Struct, frozen=True, kw_only=True):
    """What lies there."""

    path: Path
    data: tuple[tuple[DumpEntry, Path], ...]
    """Tables whose data file is there."""
    large_objects: tuple[str, ...]
    """File names of the large objects that are there, listed or not where a list is missing."""
    problems: tuple[str, ...]
    unknown_files: tuple[str, ...]
    """Names that pg_dump does not give, harmless."""


class _UnclaimedFiles:
    """The regular files of a directory that nothing has named yet."""

    def __init__(self, path: Path) -> None:
        with os.scandir(path) as found:
            self.unclaimed = {one.name for one in found if one.is_file()}
        self.unclaimed.discard(_TOC)

    def claim(self, stem: str) -> str | None:
        """The file of that name, compressed or not; as pg_restore would pick it."""
        for suffix in SUFFIXES:
            if (name := stem + suffix) in self.unclaimed:
                self.unclaimed.remove(name)
                return name
        return None


def check_directory(path: Path, plan: DumpPlan) -> DirectoryFiles:
    """Compare the directory at `path` with its plan. Raises ArchiveError where it cannot be read, or a file goes while
    it is; PermissionError."""
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
            problems.append(f"{_entry_text(entry)}: there is no {clean(entry.file)} in it")
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
    problems += _first_problems([f"large object {one}: there is no blob_{one}.dat in it" for one in missing])
    if unlisted:
        loose = sorted(name for name in files.unclaimed if name.startswith("blob_"))
        files.unclaimed.difference_update(loose)
        found += loose
    theirs = sorted(name for name in files.unclaimed if _OF_PG_DUMP.fullmatch(name))
    problems += _first_problems(
        [f"{clean(name)}: nothing in the dump names this file: it is of another one" for name in theirs]
    )
    everything = [*data, *lists, *((None, path / name) for name in found)]
    problems += _first_problems(_older_files(path, plan, everything))
    strangers = sorted(clean(name) for name in files.unclaimed.difference(theirs))
    return DirectoryFiles(
        path=path,
        data=tuple(data),
        large_objects=tuple(found),
        problems=tuple(problems),
        unknown_files=tuple(strangers),
    )


def large_object_text(file: str) -> str:
    """What a file of one is called.

    >>> large_object_text("blob_16400.dat.gz")
    'large object 16400 (blob_16400.dat.gz)'
    """
    return f"large object {file.removeprefix('blob_').partition('.')[0]} ({clean(file)})"


def entry_name(entry: DumpEntry) -> str:
    """With its schema; harmless."""
    return clean(f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag)


def _entry_text(entry: DumpEntry) -> str:
    return "large objects" if entry.desc == "BLOBS" else entry_name(entry)


def _read_list(file: Path, files: _UnclaimedFiles, found: list[str], missing: list[str]) -> set[int]:
    """The large objects a list names. Raises ValueError where it is no list, or does not end with a whole line."""
    oids = set[int]()
    with file.open("rb") as lines:
        for line in lines:
            match = _LISTED.fullmatch(line)
            if match is None or not line.endswith(b"\n"):
                raise ValueError("it does not read to its end: it was cut short, or is not a list of large objects")
            oids.add(int(match[1]))
            name = files.claim(match[2].decode())
            if name is None:
                missing.append(match[1].decode())
            else:
                found.append(name)
    return oids


def _list_problems(entry: DumpEntry, file: Path, oids: set[int], plan: DumpPlan) -> list[str]:
    """Whether a list is that of this dump: up to 16 each large object has an entry of its own (but where the data alone
    were dumped), from 17 on the list's entry is called by its first and last one."""
    if (ends := re.fullmatch(r"(\d+)(?:\.\.(\d+))?", entry.tag)) is not None:
        known = {int(one) for one in ends.groups() if one is not None}
        strange = {one for one in oids if not min(known) <= one <= max(known)}
    else:
        known = {one.oid for one in plan.entries if one.desc == "BLOB" and one.oid is not None}
        strange = oids - known if known else set()
    lost = [f"large object {one}: {file.name} does not list it: the list is cut, or of another dump" for one in
            sorted(known - oids)]  # fmt: skip
    added = [f"large object {one}: {file.name} lists it and toc.dat does not: it is of another dump" for one in
             sorted(strange)]  # fmt: skip
    return [*_first_problems(lost), *_first_problems(added)]


def _older_files(path: Path, plan: DumpPlan, everything: list[tuple[DumpEntry | None, Path]]) -> list[str]:
    """Files older than the dump. toc.dat is written before all others; its head tells when the dump began, by the clock
    of the host that dumped, whose time zone may be another: the earlier of the two counts. Copying makes files younger
    only."""
    if plan.created_us is None:
        return []
    began = min(plan.created_us / 1e6, (path / _TOC).stat().st_mtime)
    problems = []
    for entry, file in everything:
        if (written := file.stat().st_mtime) < began - CLOCK_TOLERANCE_S:
            what = f"{_entry_text(entry)} ({file.name})" if entry is not None else large_object_text(file.name)
            problems.append(
                f"{what}: written {_time_text(written)}, before this dump began ({_time_text(began)}): it is of "
                f"another one"
            )
    return problems


def _time_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _error_text(error: OSError | ValueError) -> str:
    return f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _first_problems(problems: list[str]) -> list[str]:
    more = len(problems) - _MAX_PROBLEMS
    return problems if more <= 0 else [*problems[:_MAX_PROBLEMS], f"and {more} more like the {_MAX_PROBLEMS} before"]
