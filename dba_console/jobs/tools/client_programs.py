"""Find PostgreSQL's client programs, and run pg_restore on an archive. Loads no driver: a restore waits for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dba_console.core.errors import ConsoleError, Unsupported, UsageError
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.archive_file import open_archive
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.toc import DumpEntry

# The program of a name: the one in PATH, or the newest installed version that can dump this server.

DIRECTORIES = (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin"), ("/usr/local", "pgsql*/bin"))
"""Directories of Debian, Red Hat and source builds."""
BINDIR = "DBA_CONSOLE_PG_BINDIR"
"""Environment variable with the directory to use instead of searching."""


class InstalledProgram(NamedTuple):
    """An installed program with its version; `major` as in libpq."""

    path: str
    major: int
    version: str


def find_program(name: str, *, at_least: int = 0, bindir: str | None = None) -> InstalledProgram:
    """Find a program of major version `at_least` or later: pg_dump refuses a server newer than itself.

    Order: `bindir` or $DBA_CONSOLE_PG_BINDIR, PATH, installed directories (newest first).
    Raises Unsupported if none is found.
    """
    too_old = []
    for path in _candidate_paths(name, bindir or os.environ.get(BINDIR)):
        found = program_at(path)
        if found is not None and found.major >= at_least:
            return found
        if found is not None:
            too_old.append(f"{found.path} is {found.version}")
    details = f": {', '.join(too_old)}" if too_old else ""
    wanted = f" of version {at_least} or later" if at_least else ""
    raise Unsupported(f"no {name}{wanted} found{details}", hint="install PostgreSQL's client programs")


def program_at(path: str) -> InstalledProgram | None:
    """Return the program at a path, None if it does not run."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = version_in(done.stdout)
    return InstalledProgram(path, int(re.findall(r"\d+", found)[0]), found) if found else None


def version_in(text: str) -> str | None:
    """Return the version in `pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.

    >>> version_in("pg_dump (PostgreSQL) 18beta1"), version_in("what?")
    ('18beta1', None)
    """
    match = re.search(r"\(PostgreSQL\)\s+(\d+\S*)", text)
    return match[1] if match else None


def _candidate_paths(name: str, bindir: str | None) -> Iterator[str]:
    if bindir:
        yield os.path.join(bindir, name)
        return
    if (found := shutil.which(name)) is not None:
        yield found
    for parent, pattern in DIRECTORIES:
        directories = sorted(Path(parent).glob(pattern), key=_version_key, reverse=True)
        yield from (str(directory / name) for directory in directories if os.access(directory / name, os.X_OK))


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


FK = "FK CONSTRAINT"


def foreign_key_entries(entries: Sequence[DumpEntry]) -> list[DumpEntry]:
    return [entry for entry in entries if entry.desc == FK]


def key_dependents(entries: Sequence[DumpEntry]) -> set[int]:
    """Return the dump ids of entries that depend on foreign keys, such as comments on them."""
    keys = {entry.dump_id for entry in entries if entry.desc == FK}
    after, grown = set(keys), True
    while grown:
        more = {entry.dump_id for entry in entries if entry.dump_id not in after and after.intersection(entry.needs)}
        after |= more
        grown = bool(more)
    return after - keys


def list_without_keys(archive: Path, bindir: str | None) -> str:
    """Return a list for pg_restore -L without foreign keys and their dependents. Raises ArchiveError, ConsoleError."""
    plan, program = open_with_toc(archive), find_program("pg_restore", bindir=bindir).path
    left_out = key_dependents(plan.entries) | {entry.dump_id for entry in foreign_key_entries(plan.entries)}
    lines = pg_restore_output([program, "-l", str(archive)], set()).splitlines()
    return b"\n".join(line for line in lines if _dump_id(line) not in left_out).decode(errors="surrogateescape")


def open_with_toc(archive: Path) -> DumpPlan:
    plan = open_archive(archive)
    if plan.format == "plain":
        raise UsageError(
            f"{archive} is a plain SQL script: its foreign keys cannot be restored separately",
            hint="use a directory or custom archive, which has a table of contents",
        )
    return plan


def pg_restore_output(argv: Sequence[str], ids: set[int]) -> bytes:
    """Return pg_restore's output; `{list}` in its arguments is replaced by a list file of these entries."""
    with tempfile.TemporaryDirectory(prefix="dba-console-keys-") as place:
        argv = list(argv)
        if "{list}" in argv:
            argv[argv.index("{list}")] = str(write_list(argv[0], Path(argv[-1]), ids, Path(place)))
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
    if done.returncode:
        raise ConsoleError(f"pg_restore cannot read {argv[-1]}: {clean(done.stderr.decode(errors='replace').strip())}")
    return done.stdout


def write_list(program: str, archive: Path, ids: set[int], place: Path) -> Path:
    """Write a list for pg_restore -L, in the archive's order."""
    lines = [
        line for line in pg_restore_output([program, "-l", str(archive)], set()).splitlines() if _dump_id(line) in ids
    ]
    path = place / "list"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def _dump_id(line: bytes) -> int | None:
    number = line.partition(b";")[0]
    return int(number) if number.isdigit() else None
