"""The SQL of this room: one statement to a file, one file to a floor.

`name.sql` is for every version from 13 on, `name_140000.sql` for servers from that version number on; the highest floor
that the server reaches is used. Where no file fits, the server has no such thing.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

OLDEST = 130000
"""Server version below which nothing here was tried."""

_DIRECTORY = Path(__file__).with_name("sql")
_FILE = re.compile(r"(?P<name>[a-z_]+?)(?:_(?P<floor>\d{6}))?\.sql")


@cache
def _floors() -> dict[str, dict[int, bytes]]:
    # All at once, at the start: when the disk hangs it is too late to read them.
    found: dict[str, dict[int, bytes]] = {}
    for path in sorted(_DIRECTORY.iterdir()):
        if match := _FILE.fullmatch(path.name):
            found.setdefault(match["name"], {})[int(match["floor"] or 0)] = _bare(path.read_bytes())
    return found


def _bare(text: bytes) -> bytes:
    r"""The statement without the comment above it, which would stand in pg_stat_activity before what is asked.

    >>> _bare(b"-- Why.\n-- And how.\nSELECT 1 -- one")
    b'SELECT 1 -- one'
    """
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith(b"--"):
        del lines[0]
    return b"".join(lines)


def names() -> list[str]:
    """Every statement there is."""
    return sorted(_floors())


def statement(name: str, version_num: int) -> bytes | None:
    """The text of a statement for a server, None where this version has no such thing. Raises KeyError on a typo."""
    floors = _floors()[name]
    fitting = [floor for floor in floors if floor <= version_num]
    return floors[max(fitting)] if fitting else None


def needs_version(name: str) -> int:
    """The major version from which the statement exists."""
    lowest = min(_floors()[name])
    return (lowest or OLDEST) // 10000
