"""The words of layout: spans, lines, tables. Text with a meaning instead of a colour.

What came from a server or a kernel goes through `clean` before it becomes a span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, overload

from dba_console.panels.cell_width import cut, fit, width
from dba_console.sanitize import clean

__all__ = [
    "Cell",
    "Detail",
    "LazyLines",
    "Line",
    "Span",
    "Style",
    "Table",
    "TableColumn",
    "TableRow",
    "clean",
    "cut",
    "fit",
    "fit_line",
    "line",
    "line_text",
    "line_width",
    "width",
]  # fmt: skip

Style = Literal["", "dim", "title", "ok", "warn", "crit", "stale", "changed", "bar", "key", "head", "selected"]
"""What a span means. The screen maps it to colours; text output to nothing; it never carries meaning alone."""


class Span(NamedTuple):
    text: str
    style: Style = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line from strings and spans."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts if part)


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


def line_text(spans: Line) -> str:
    """The line as text, without trailing blanks."""
    return "".join(span.text for span in spans).rstrip()


@dataclass(frozen=True, slots=True)
class TableColumn:
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
    spare: int = 0
    """Left out of text that is too narrow: the highest first; 0 stays."""
    keep: bool = False
    """What the row is known by: cut only after all other words."""


class Cell(NamedTuple):
    """Text shown, value sorted by, and what it means."""

    text: str
    value: Any = None
    style: Style = ""


class LazyLines(Sequence[Line]):
    """Lines made when first looked at: a table of a thousand rows lays out the detail of the selected one only."""

    __slots__ = ("_lines", "_make")

    def __init__(self, make: Callable[[], Sequence[Line]]) -> None:
        self._make = make
        self._lines: Sequence[Line] | None = None

    def _made_lines(self) -> Sequence[Line]:
        if self._lines is None:
            self._lines = self._make()
        return self._lines

    def __len__(self) -> int:
        return len(self._made_lines())

    def __iter__(self) -> Iterator[Line]:
        return iter(self._made_lines())

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        return self._made_lines()[index]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row known by what it is (pid and start, name), not by where it stands."""

    key: str
    cells: tuple[Cell, ...]
    detail: Sequence[Line] = field(default=(), compare=False)
    """Shown under the table when the row is selected: full query, all columns. Not cut to any width."""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
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
