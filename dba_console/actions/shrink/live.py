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
from dba_console.probes.host.procstat import stat_of

Identity = tuple[int, int]
"""st_dev, st_ino."""

_TABLESPACE = re.compile(r"PG_\d+(\.\d+)?_\d{9}")
"""Directory of one server version in a tablespace (TABLESPACE_VERSION_DIRECTORY)."""
_WAL = re.compile(r"[0-9A-F]{24}(\.partial)?")


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of the servers that run here."""

    known: dict[Identity, str]
    """Directory -> what it is, in words."""
    unseen: tuple[str, ...] = ()
    """Servers whose directories could not be seen, in words: then nothing may be said to be outside of them."""


def live_places(proc: str = "/proc") -> Places:
    """Data directories, WAL directories and tablespaces of every server that runs on this host."""
    known: dict[Identity, str] = {}
    unseen = []
    for postmaster in find_postmasters(proc):
        try:
            known.update(_of(postmaster, proc))
        except OSError as error:
            now = stat_of(proc, postmaster.pid)
            if now is None or now.start_ticks != postmaster.start_ticks:
                continue  # it ended while it was looked at
            unseen.append(f"the server of process {postmaster.pid} ({error.strerror})")
    return Places(known, tuple(unseen))


def _of(postmaster: Postmaster, proc: str) -> Iterator[tuple[Identity, str]]:
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
            yield _identity(_within(cwd, name, root)), f"{name} {whose}"
        except FileNotFoundError:
            continue
    for name in _tablespaces(cwd):
        try:
            yield _identity(_within(cwd, f"pg_tblspc/{name}", root)), f"the tablespace {name} {whose}"
        except FileNotFoundError:
            continue


def _tablespaces(cwd: str) -> list[str]:
    try:
        return os.listdir(f"{cwd}/pg_tblspc")
    except FileNotFoundError:
        return []  # initdb at work, or a server whose directory was removed under it


def _within(cwd: str, name: str, root: str) -> str:
    """Where a link in the data directory leads, as the server itself sees it: its root may not be ours."""
    place = f"{cwd}/{name}"
    try:
        target = os.readlink(place)
    except OSError:
        return place
    return root + target if target.startswith("/") else f"{os.path.dirname(place)}/{target}"


def _identity(path: str) -> Identity:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def inside(path: str, places: Places) -> str | None:
    """What a directory at or above `path` is to a running server; None where it is nothing. Raises OSError."""
    for directory in _upwards(path):
        if (what := places.known.get(_identity(directory))) is not None:
            return what
    return None


def looks_like_a_server(path: str) -> str | None:
    """What `path` seems to be a part of, running or not; None where nothing looks like it. `path` is a file's."""
    for directory in _upwards(os.path.dirname(path)):
        if os.path.exists(f"{directory}/PG_VERSION") and os.path.exists(f"{directory}/global/pg_control"):
            return f"the data directory {directory}, whose server does not run here"
        if _TABLESPACE.fullmatch(os.path.basename(directory)):
            return f"the tablespace {os.path.dirname(directory)}"
    parent = os.path.dirname(path)
    if _WAL.fullmatch(os.path.basename(path)) and os.path.isdir(f"{parent}/archive_status"):
        return f"the WAL directory {parent}"
    return None


def _upwards(path: str) -> Iterator[str]:
    while True:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)
