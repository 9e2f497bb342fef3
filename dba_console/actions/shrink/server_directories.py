"""Which directories belong to servers, so that nothing in them is ever touched.

Directories are compared by device and inode, not by name: a bind mount, a link or a container shows the same directory
under another path. Everything here touches file systems, so it is called in a lane.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dba_console.probes.host.postmasters import Postmaster, find_postmasters
from dba_console.probes.host.procstat import read_stat

FileIdentity = tuple[int, int]
"""st_dev, st_ino."""

_TABLESPACE = re.compile(r"PG_\d+(\.\d+)?_\d{9}")
"""Directory of one server version in a tablespace (TABLESPACE_VERSION_DIRECTORY)."""
_WAL = re.compile(r"[0-9A-F]{24}(\.partial)?")


@dataclass(frozen=True, slots=True)
class ServerDirectories:
    """The directories of the servers that run here."""

    known: dict[FileIdentity, str]
    """Directory -> what it is, in words."""
    unreadable: tuple[str, ...] = ()
    """Servers whose directories could not be seen, in words: then nothing may be said to be outside of them."""


def find_server_directories(proc: str = "/proc") -> ServerDirectories:
    """Data directories, WAL directories and tablespaces of every server that runs on this host."""
    known: dict[FileIdentity, str] = {}
    unseen = []
    for postmaster in find_postmasters(proc):
        try:
            known.update(_directories_of(postmaster, proc))
        except OSError as error:
            now = read_stat(proc, postmaster.pid)
            if now is None or now.start_ticks != postmaster.start_ticks:
                continue  # it ended while it was looked at
            unseen.append(f"the server of process {postmaster.pid} ({error.strerror})")
    return ServerDirectories(known, tuple(unseen))


def _directories_of(postmaster: Postmaster, proc: str) -> Iterator[tuple[FileIdentity, str]]:
    """Raises OSError where it cannot all be seen. A directory that has gone meanwhile is not there to be hurt."""
    cwd, root = f"{proc}/{postmaster.pid}/cwd", f"{proc}/{postmaster.pid}/root"
    try:
        os.stat(f"{cwd}/PG_VERSION")
    except FileNotFoundError:
        return  # the process is starting and has not entered its data directory yet, or only prints its version
    whose = f"of the server of process {postmaster.pid}"
    named = postmaster.data_directory or cwd
    yield _identity(cwd), f"the data directory {whose}, {named}"
    for name in ("pg_wal", "pg_xlog", "log", "pg_log"):
        try:
            yield _identity(_resolve_link(cwd, name, root)), f"{name} {whose}"
        except FileNotFoundError:
            continue
    for name in _tablespaces(cwd):
        try:
            yield _identity(_resolve_link(cwd, f"pg_tblspc/{name}", root)), f"the tablespace {name} {whose}"
        except FileNotFoundError:
            continue


def _tablespaces(cwd: str) -> list[str]:
    try:
        return os.listdir(f"{cwd}/pg_tblspc")
    except FileNotFoundError:
        return []  # initdb at work, or a server whose directory was removed under it


def _resolve_link(cwd: str, name: str, root: str) -> str:
    """Where a link in the data directory leads, as the server itself sees it: its root may not be ours."""
    place = f"{cwd}/{name}"
    try:
        target = os.readlink(place)
    except OSError:
        return place
    return root + target if target.startswith("/") else f"{os.path.dirname(place)}/{target}"


def _identity(path: str) -> FileIdentity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def find_containing(path: str, places: ServerDirectories) -> str | None:
    """What a directory at or above `path` is to a running server; None where it is nothing. Raises OSError."""
    for directory in _with_parents(path):
        if (what := places.known.get(_identity(directory))) is not None:
            return what
    return None


def looks_like_server_file(path: str) -> str | None:
    """What `path` seems to be a part of, running or not; None where nothing looks like it. `path` is a file's."""
    for directory in _with_parents(os.path.dirname(path)):
        if os.path.exists(f"{directory}/PG_VERSION") and os.path.exists(f"{directory}/global/pg_control"):
            return f"the data directory {directory}, whose server does not run here"
        if _TABLESPACE.fullmatch(os.path.basename(directory)):
            return f"the tablespace {os.path.dirname(directory)}"
    parent = os.path.dirname(path)
    if _WAL.fullmatch(os.path.basename(path)) and os.path.isdir(f"{parent}/archive_status"):
        return f"the WAL directory {parent}"
    return None


def _with_parents(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)
