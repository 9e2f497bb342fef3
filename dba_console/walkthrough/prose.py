"""Markdown of a runbook as lines to be read: paragraphs refilled to the width, lists and code kept as they stand.

The text of a document is somebody's: it is made harmless, and nothing in it drives the terminal.
"""

from __future__ import annotations

import re

from dba_console.panels.text_elements import Line, Span, clean, line
from dba_console.panels.wrapping import wrap, wrap_line

_ITEM = re.compile(r"^(\s*)([-*+]|\d{1,3}[.)])\s+(.*)$")
_HEADING = re.compile(r"^#{1,6}\s+(.*)$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
"""A span of code: what stands in it is meant as it is written."""
_HIDE, _SHOW = str.maketrans("*_", "\x01\x02"), str.maketrans("\x01\x02", "*_")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<![\w*\\])([*_])(?=[\w\"'(`])((?:(?!\1).)+?)(?<=\S)\1(?![\w*])")
"""One sign around words, as Markdown reads it: not in `a * b`, `count(*)`, `pg_dump_all`."""


def prose_lines(markdown: str, cells: int) -> list[Line]:
    """The text in lines of at most `cells` cells, one blank line between paragraphs."""
    lines: list[Line] = []
    for kind, text in _pieces(markdown):
        match kind:
            case "blank":
                if lines and lines[-1]:
                    lines.append(())
            case "code":
                lines += wrap_line(line(Span("  " + clean(text), "key")), cells)
            case "heading":
                lines += wrap_line(line(Span(_plain(text), "title")), cells)
            case _:
                lines += _hanging(text, "" if kind == "text" else kind, cells)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _hanging(text: str, lead: str, cells: int) -> list[Line]:
    """A paragraph, or an item of a list whose further lines stand under its first word."""
    pieces = wrap(_plain(text), max(8, cells - len(lead)))
    return [line((lead if place == 0 else " " * len(lead)) + piece) for place, piece in enumerate(pieces)]


def _plain(text: str) -> str:
    """Without the signs of emphasis, which mean nothing here; spans of code as they stand."""
    hidden = _CODE.sub(lambda code: code[0].translate(_HIDE), text)
    return clean(_EMPHASIS.sub(r"\2", _STRONG.sub(r"\2", hidden)).translate(_SHOW))


def _pieces(markdown: str) -> list[tuple[str, str]]:
    """Kind and text of each paragraph, item, heading, line of code, blank line; an item's kind is its lead."""
    pieces: list[tuple[str, str]] = []
    code = False
    for one in markdown.splitlines():
        if _FENCE.match(one):
            code = not code
        elif code:
            pieces.append(("code", one))
        elif not one.strip():
            pieces.append(("blank", ""))
        elif (heading := _HEADING.match(one)) is not None:
            pieces.append(("heading", heading[1]))
        elif one.lstrip().startswith("|"):
            pieces.append(("row", one.strip()))
        elif (item := _ITEM.match(one)) is not None:
            sign = "·" if item[2] in "-*+" else item[2]
            pieces.append((f"{' ' * min(len(item[1]), 6)}{sign} ", item[3]))
        elif pieces and pieces[-1][0] not in ("blank", "code", "heading", "row"):
            kind, before = pieces[-1]
            pieces[-1] = (kind, f"{before} {one.strip()}")
        else:
            pieces.append(("text", one.strip()))
    return [("text", text) if kind == "row" else (kind, text) for kind, text in pieces]
