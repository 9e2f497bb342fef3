"""Where each key of a TOML file stands, which the standard library's parser does not tell.

The file is known to be valid TOML before it comes here. Statements are found by parsing pieces of it again: a piece
that does not parse alone continues on the next line, so strings and arrays over several lines need no rules of our own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from dba_console.cli.config_schema import KeyPath


def key_lines(text: str) -> dict[KeyPath, int]:
    """Line number (from 1) of every key and table of `text`.

    >>> key_lines('[agent]\\ngrace = "1m"\\n[targets.db1]\\ndsn = ""')
    {('agent',): 1, ('agent', 'grace'): 2, ('targets',): 3, ('targets', 'db1'): 3, ('targets', 'db1', 'dsn'): 4}
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, values, is_header in _statements(text):
        paths = list(_key_paths(values))
        if is_header:
            table = paths[-1]
            for path in paths:
                lines.setdefault(path, number)
        else:
            for path in paths:
                lines.setdefault((*table, *path), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    piece, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not piece:
            first = number
        piece += line + "\n"
        try:
            values = tomllib.loads(piece)
        except tomllib.TOMLDecodeError:
            continue
        if values:
            yield first, values, piece.lstrip().startswith("[")
        piece = ""


def _key_paths(values: dict[str, Any], at: KeyPath = ()) -> Iterator[KeyPath]:
    for name, value in values.items():
        path = (*at, name)
        yield path
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict):
            yield from _key_paths(inner, path)
