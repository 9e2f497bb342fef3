"""The words of layout: spans, lines, tables. Text with a meaning instead of a colour.

Every string that came from a server or a kernel enters through `clean`: control characters, escapes and bidirectional
overrides become visible, harmless signs, so no terminal can be driven by what a session calls itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, overload

Style = Literal["", "dim", "title", "ok", "warn", "crit", "stale", "changed", "bar", "key", "head", "selected"]
"""What a span means. The screen maps it to colours; text output to nothing; it never carries meaning alone."""


class Span(NamedTuple):
    text: str
    style: Style = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line from strings and spans."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts if part)


class _Harmless(dict[int, int | str | None]):
    """What each sign becomes, found out once: pictures for C0 controls, a blank for odd blanks, nothing for variation
    selectors (terminals disagree on their width), U+FFFD for what hides, reorders or cannot be shown."""

    def __missing__(self, code: int) -> int | str | None:
        sign = chr(code)
        answer: int | str | None
        if code < 32 or code == 127:
            answer = 0x2421 if code == 127 else 0x2400 + code
        elif 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
            answer = None
        elif sign.isprintable():
            answer = code
        else:
            answer = " " if unicodedata.category(sign) == "Zs" else 0xFFFD
        self[code] = answer
        return answer


_HARMLESS = _Harmless()


def clean(text: str) -> str:
    """`text` as one line of printable signs: controls become their pictures, what hides or reorders becomes U+FFFD.

    >>> clean("select 1;\\n\\x1b[2J\\x00"), clean("a\\u202eb")
    ('select 1;␊␛[2J␀', 'a�b')
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_HARMLESS)


_NARROW = re.compile(r"[ -~\u00a1-\u02ff\u2010-\u2027\u2190-\u21ff\u2400-\u2426\u2500-\u25fc]*")
"""Signs known to take one cell: what the panels draw with, so that most lines are measured by their length."""


def width(text: str) -> int:
    """Terminal cells `text` takes: wide East Asian signs take two, combining ones none.

    >>> width("abc"), width("表"), width("e\\u0301")
    (3, 2, 1)
    """
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    return sum(map(_cell, text))


@lru_cache(maxsize=4096)
def _cell(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """`text` in exactly `cells` cells: padded, or cut with `…`.

    >>> fit("abc", 5), fit("abcdef", 4), fit("7", 3, right=True)
    ('abc  ', 'abc…', '  7')
    """
    taken = width(text)
    if taken > cells:
        text = cut(text, cells)
        taken = width(text)
    padding = " " * (cells - taken)
    return padding + text if right else text + padding


def cut(text: str, cells: int) -> str:
    """`text` in at most `cells` cells, its end replaced by `…` where it does not fit."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    taken, kept = 0, []
    for sign in text:
        step = _cell(sign)
        if taken + step > cells - 1:
            break
        kept.append(sign)
        taken += step
    return "".join(kept) + "…"


def line_width(spans: Line) -> int:
    return sum(width(span.text) for span in spans)


def fit_line(spans: Line, cells: int) -> Line:
    """The line in exactly `cells` cells."""
    taken, kept = 0, []
    for span in spans:
        room = cells - taken
        if room <= 0:
            break
        text = span.text if width(span.text) <= room else cut(span.text, room)
        kept.append(Span(text, span.style))
        taken += width(text)
    if taken < cells:
        kept.append(Span(" " * (cells - taken)))
    return tuple(kept)


def plain(spans: Line) -> str:
    """The line as text, without trailing blanks."""
    return "".join(span.text for span in spans).rstrip()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: declared once for screen, text, sorting and help."""

    id: str
    title: str
    width: int
    right: bool = False
    """Right-justified: numbers."""
    help: str = ""
    sort_key: str | None = None
    """The key that sorts by it on the screen."""
    grow: bool = False
    """Takes what width is left: at most one per table."""
    descending: bool = False
    """Sorts largest first."""


class Cell(NamedTuple):
    """Text shown, value sorted by, and what it means."""

    text: str
    value: Any = None
    style: Style = ""


class Lines(Sequence[Line]):
    """Lines made when first looked at: a table of a thousand rows lays out the detail of the selected one only."""

    __slots__ = ("_lines", "_make")

    def __init__(self, make: Callable[[], Sequence[Line]]) -> None:
        self._make = make
        self._lines: Sequence[Line] | None = None

    def _all(self) -> Sequence[Line]:
        if self._lines is None:
            self._lines = self._make()
        return self._lines

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Line]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        return self._all()[index]


@dataclass(frozen=True, slots=True)
class Row:
    """A row known by what it is (pid and start, name), not by where it stands."""

    key: str
    cells: tuple[Cell, ...]
    detail: Sequence[Line] = field(default=(), compare=False)
    """Shown under the table when the row is selected: full query, all columns. Not cut to any width."""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sort: str | None = None
    """Column id sorted by at first; None keeps the order given (trees)."""
    title: str = ""
    empty: str = "none"
    """What stands where no row is: says why."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A panel in full: lines of fact, then tables."""

    title: str
    head: tuple[Line, ...]
    tables: tuple[Table, ...] = field(default=())
