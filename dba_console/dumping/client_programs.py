"""PostgreSQL's client programs: the one on the path, or the newest installed that can dump this server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dba_console.errors import Unsupported

DIRECTORIES = (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin"), ("/usr/local", "pgsql*/bin"))
"""Where Debian, Red Hat and a build by hand keep them."""
BINDIR = "DBA_CONSOLE_PG_BINDIR"
"""Names a directory to take them from instead of searching."""


class InstalledProgram(NamedTuple):
    """A program that runs here, and its version as libpq counts majors."""

    path: str
    major: int
    version: str


def find_program(name: str, *, at_least: int = 0, bindir: str | None = None) -> InstalledProgram:
    """The program of that name, of major version `at_least` or later: pg_dump refuses a newer server than itself.

    `bindir`, or $DBA_CONSOLE_PG_BINDIR, goes before the path, the path before installed directories, newest first.
    Raises Unsupported where there is none.
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
    raise Unsupported(f"there is no {name}{wanted} here{details}", hint="install PostgreSQL's client programs")


def program_at(path: str) -> InstalledProgram | None:
    """What lies there, None where nothing runs."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = version_in(done.stdout)
    return InstalledProgram(path, int(re.findall(r"\d+", found)[0]), found) if found else None


def version_in(text: str) -> str | None:
    """The version in `pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.

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
