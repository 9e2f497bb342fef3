"""Where what PostgreSQL keeps really lies: symbolic links followed, relative paths taken from the data directory.

Following a link touches the file system, so this is called in a lane only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

WITHIN_DATA = {"wal": "pg_wal", "temp": "base/pgsql_tmp"}
"""What lies in the data directory unless a link or a setting puts it elsewhere."""

NO_ACCESS = (
    "the data directory cannot be entered, so whether pg_wal is a link to another file system is not known: "
    "run the agent as root or as the owner of the server"
)


def named_paths(paths: Mapping[str, str], data_directory: str | None) -> dict[str, str]:
    """What -> absolute path, as named: completed by what every data directory has, nothing looked up.

    >>> named_paths({"data": "/pg", "log": "log"}, None)
    {'data': '/pg', 'log': '/pg/log', 'wal': '/pg/pg_wal', 'temp': '/pg/base/pgsql_tmp'}
    """
    data = paths.get("data") or data_directory
    named = {what: path for what, path in paths.items() if path}
    if data:
        named["data"] = data
        for what, below in WITHIN_DATA.items():
            named.setdefault(what, f"{data}/{below}")
    whole = {what: path if path.startswith("/") else f"{data}/{path}" for what, path in named.items()}
    return {what: path for what, path in whole.items() if path.startswith("/")}


def resolve_links(named: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """What -> path with all links followed, and a note where that could not be seen.

    A place that may be a link but cannot be looked at is left out: it must not be attributed to the wrong mount.
    """
    followed: dict[str, str] = {}
    note = None
    for what, path in named.items():
        try:
            followed[what] = _resolve(path)
        except PermissionError:
            note = NO_ACCESS
        except OSError:
            followed[what] = os.path.normpath(path)
    return followed, note


def _resolve(path: str) -> str:
    """The path without links; a part at its end that does not exist yet is kept. Raises OSError."""
    try:
        return os.path.realpath(path, strict=True)
    except FileNotFoundError:
        head, tail = os.path.split(path)
        return os.path.join(_resolve(head), tail) if tail else os.path.normpath(path)
