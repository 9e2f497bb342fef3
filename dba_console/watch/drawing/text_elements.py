"""Elements of layout: spans, lines, tables. Text has a meaning instead of a colour.

Text from a server or a kernel goes through `clean` before it becomes a span.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from dba_console.core.sanitize import clean as clean

# Text in terminal cells: measured, padded, cut.
#
# Text is measured after `clean` (sanitize.py) made it one line of printable characters: controls have no width.

_NARROW = re.compile(r"[ -~\u00a1-\u02ff\u2010-\u2027\u203c\u2190-\u21ff\u2400-\u2426\u2500-\u25fc]*")
"""Characters known to take one cell: those the panels draw with, so most lines are measured by their length."""


def text_width(text: str) -> int:
    """Return the terminal cells of `text`: wide East Asian characters take two, combining ones none.

    >>> text_width("abc"), text_width("表"), text_width("e\\u0301")
    (3, 2, 1)
    """
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    return sum(map(_character_width, text))


@lru_cache(maxsize=4096)
def _character_width(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """Return `text` in exactly `cells` cells: padded, or cut with `…`.

    >>> fit("abc", 5), fit("abcdef", 4), fit("7", 3, right=True)
    ('abc  ', 'abc…', '  7')
    """
    taken = text_width(text)
    if taken > cells:
        text = cut(text, cells)
        taken = text_width(text)
    padding = " " * (cells - taken)
    return padding + text if right else text + padding


def cut(text: str, cells: int) -> str:
    """Return `text` in at most `cells` cells, cut with `…` if needed."""
    if text_width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    taken, kept = 0, []
    for sign in text:
        step = _character_width(sign)
        if taken + step > cells - 1:
            break
        kept.append(sign)
        taken += step
    return "".join(kept) + "…"


Style = Literal["", "dim", "title", "ok", "warn", "crit", "stale", "changed", "bar", "key", "head", "selected"]
"""Meaning of a span. The screen maps it to colours, text output ignores it; text never depends on it."""


class Span(NamedTuple):
    text: str
    style: Style = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """Build a line from strings and spans."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts if part)


def line_width(spans: Line) -> int:
    return sum(text_width(span.text) for span in spans)


def fit_line(spans: Line, cells: int) -> Line:
    """Return the line in exactly `cells` cells."""
    taken, kept = 0, []
    for span in spans:
        space = cells - taken
        if space <= 0:
            break
        needed = text_width(span.text)
        if needed > space:
            span = Span(cut(span.text, space), span.style)
            needed = text_width(span.text)
        kept.append(span)
        taken += needed
    if taken < cells:
        kept.append(Span(" " * (cells - taken)))
    return tuple(kept)


def line_text(spans: Line) -> str:
    """Return the line as text, without trailing blanks."""
    return "".join(span.text for span in spans).rstrip()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table: declared once for screen, text, sorting and help."""

    id: str
    title: str
    width: int
    right: bool = False
    """Right-aligned: numbers."""
    help: str = ""
    grow: bool = False
    """Takes the remaining width: at most one per table."""
    descending: bool = False
    """Sorts largest first."""
    spare: int = 0
    """Dropped if the text is too narrow: the highest first; 0 is never dropped."""
    keep: bool = False
    """Identifies the row: cut only after all other text columns."""


class Cell(NamedTuple):
    """Text shown, value to sort by, and meaning."""

    text: str
    value: Any = None
    style: Style = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row with its identity (pid and start, name), not its position."""

    key: str
    cells: tuple[Cell, ...]
    detail: Callable[[], Sequence[Line]] = field(default=tuple, compare=False)
    """Builds what is shown under the table if the row is selected: full query, all columns. Not cut to any width."""
    indent: int = 0
    copied: str | None = field(default=None, compare=False)
    """What the operator copies of it, such as its query; None: its details."""


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    sort: str | None = None
    """Id of the initial sort column; None keeps the given order (trees)."""
    title: str = ""
    empty: str = "none"
    """Shown if there are no rows: the reason."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A panel in full: lines of facts, then tables."""

    title: str
    head: tuple[Line, ...]
    tables: tuple[Table, ...] = field(default=())


# Lines broken to the width of the screen, between words; every piece keeps its meaning.


def line_breaks(text: str, cells: int) -> list[tuple[int, int]]:
    """Break `text` into lines of at most `cells` cells; return start and end of each, without blanks at the ends.

    Breaks at a blank if there is one, else at the edge; a single character wider than the line is alone on it.
    """
    pieces: list[tuple[int, int]] = []
    start = 0
    while start < len(text) and text_width(text[start:]) > cells:
        end = start + max(1, _characters_that_fit(text, start, cells))
        blank = text.rfind(" ", start, end + 1)
        if blank > start:
            end = blank
        pieces.append((start, start + len(text[start:end].rstrip())))
        while end < len(text) and text[end] == " ":
            end += 1
        start = end
    return [*pieces, (start, len(text))] if start < len(text) or not pieces else pieces


def _characters_that_fit(text: str, start: int, cells: int) -> int:
    """Return how many characters from `start` on fit into `cells` cells."""
    taken = 0
    for index in range(start, len(text)):
        taken += text_width(text[index])
        if taken > cells:
            return index - start
    return len(text) - start


def wrap(text: str, cells: int) -> list[str]:
    """Break `text` into lines of at most `cells` cells, at blanks if possible.

    >>> wrap("select a, b from c", 9)
    ['select a,', 'b from c']
    """
    return [text[start:end] for start, end in line_breaks(text, cells)]


def wrap_words(text: str, cells: int) -> list[str]:
    """Sanitize `text` and wrap it with single blanks between its words; no line without a word.

    >>> wrap_words("not permitted: GRANT pg_monitor  TO app", 16), wrap_words(" ", 9)
    (['not permitted:', 'GRANT pg_monitor', 'TO app'], [])
    """
    words = " ".join(clean(text).split())
    return wrap(words, cells) if words and cells > 0 else []


def wrap_line(spans: Line, cells: int) -> list[Line]:
    """Break a line of spans to `cells` cells between words; every piece keeps its meaning."""
    if line_width(spans) <= cells:
        return [spans]
    text = "".join(span.text for span in spans)
    return [_slice(spans, start, end) for start, end in line_breaks(text, cells)]


def wrap_lines(lines: Iterable[Line], cells: int) -> list[Line]:
    """Break every line to `cells` cells."""
    return [piece for spans in lines for piece in wrap_line(spans, cells)]


def scrolled_lines(lines: Sequence[Line], top: int, height: int, indent: str = " ") -> list[Line]:
    """Return at most `height` lines from `top` on; if more follow, the last one shows how many."""
    shown = list(lines[top : top + max(0, height)])
    left = len(lines) - top - height
    if left > 0 and height > 1:
        shown[-1] = (Span(f"{indent}… ↓ {left + 1} more lines", "dim"),)
    return shown


def _slice(spans: Line, start: int, end: int) -> Line:
    kept: list[Span] = []
    offset = 0
    for text, style in spans:
        piece = text[max(0, start - offset) : max(0, end - offset)]
        if piece:
            kept.append(Span(piece, style))
        offset += len(text)
    return tuple(kept)


# ASCII replacements for terminals and pipes without UTF-8, in the same number of cells.

_UNICODE_SIGNS = "─╌│┼┬┴├┤┌┐└┘╵▁▂▃▄▅▆▇█·…←→▲▼⧗●×≈−–▶✓↓↑‼"
_ASCII_SIGNS = "--|+++++++++'_..--=##.~<>^vw*x~-->+v^#"
_TRANSLATION = str.maketrans(_UNICODE_SIGNS, _ASCII_SIGNS)


def ascii_text(text: str) -> str:
    """Return `text` in ASCII: our symbols by similar characters, any other as `?`, twice if it was wide.

    >>> ascii_text("▇▇▁ 81% · 表")
    '##_ 81% . ??'
    """
    if text.isascii():
        return text
    likeness = text.translate(_TRANSLATION)
    if likeness.isascii():
        return likeness
    return "".join(sign if sign.isascii() else "?" * text_width(sign) for sign in likeness)


def ascii_line(spans: Line) -> Line:
    return tuple(Span(ascii_text(span.text), span.style) for span in spans)


# A table as lines of text, and which columns shrink if the line is too short.
#
# The screen draws tables itself, from the same declaration.

_MIN_GROWING_WIDTH = 30
_MIN_TEXT_WIDTH = 8
_WIDE = 150


def column_widths(columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int) -> list[int]:
    """Return the cells of each column: what it needs, at most what it declares.

    The growing column takes what is left; what it leaves goes to other text columns that are cut.

    If space is short, the widest text columns shrink, identifying ones last; numbers never do.
    """
    cells = [_needed_width(*one, rows, width) for one in enumerate(columns)]
    left = width - sum(cells) - max(0, len(cells) - 1)
    words = [index for index, column in enumerate(columns) if not column.right]
    for index in sorted(words, key=lambda index: not columns[index].grow) if left > 0 else ():
        more = min(_longest_width(columns[index], rows, index) - cells[index], left)
        cells[index] += more
        left -= more
    for shrinkable in ([at for at in words if not columns[at].keep], [at for at in words if columns[at].keep]):
        while left < 0 and shrinkable:
            widest = max(shrinkable, key=lambda index: cells[index])
            if cells[widest] <= _MIN_TEXT_WIDTH:
                break
            cells[widest] -= 1
            left += 1
    return cells


def _needed_width(index: int, column: TableColumn, rows: Sequence[TableRow], width: int) -> int:
    """Return what the column needs, at most what it declares; a growing one needs little and may get more."""
    return min(_longest_width(column, rows, index), _growing_width(column, width) if column.grow else column.width)


def _growing_width(column: TableColumn, width: int) -> int:
    """Return the need of a growing column; a third of a wide line, so that a query is readable."""
    return min(column.width, width // 3 if width >= _WIDE else _MIN_GROWING_WIDTH)


def _longest_width(column: TableColumn, rows: Sequence[TableRow], index: int) -> int:
    return max([text_width(column.title), *(text_width(row.cells[index].text) for row in rows)])


def _drop_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow], dropped: set[int]
) -> tuple[list[TableColumn], list[TableRow]]:
    kept = [index for index in range(len(columns)) if index not in dropped]
    return [columns[index] for index in kept], [TableRow(row.key, tuple([row.cells[i] for i in kept])) for row in rows]


def drop_blank_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow]
) -> tuple[list[TableColumn], list[TableRow]]:
    """Return the table without columns that are blank in every row; an unknown value is not blank."""
    blank = {index for index in range(len(columns)) if rows and not any(row.cells[index].text for row in rows)}
    return _drop_columns(columns, rows, blank)


def drop_spare_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int
) -> tuple[list[TableColumn], list[TableRow]]:
    """Return the table without the spare columns that do not fit `width`, the highest `spare` first."""
    return _drop_columns(
        columns,
        rows,
        _columns_to_drop(columns, [_needed_width(*one, rows, width) for one in enumerate(columns)], width),
    )


def move_spare_columns_last(table: Table, width: int) -> Table:
    """Return the table with the spare columns that do not fit moved behind the others, where they can be scrolled to.

    Uses the declared widths, so that columns keep their positions when their content changes.
    """
    columns = table.columns
    moved = _columns_to_drop(
        columns, [_growing_width(column, width) if column.grow else column.width for column in columns], width
    )
    if not moved:
        return table
    order = [*(index for index in range(len(columns)) if index not in moved), *sorted(moved)]
    pick = itemgetter(*order)
    rows = tuple([TableRow(row.key, pick(row.cells), row.detail, row.indent, row.copied) for row in table.rows])
    return replace(table, columns=tuple(columns[index] for index in order), rows=rows)


def _columns_to_drop(columns: Sequence[TableColumn], cells: Sequence[int], width: int) -> set[int]:
    """Return the columns to drop so that the rest fits, the highest `spare` first."""
    over = sum(cells) + len(cells) - 1 - width
    dropped: set[int] = set()
    for index in sorted(range(len(columns)), key=lambda index: -columns[index].spare):
        if over <= 0 or columns[index].spare == 0:
            break
        dropped.add(index)
        over -= cells[index] + 1
    return dropped


def table_lines(columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int) -> list[Line]:
    """Return headings and rows, each at most `width` cells: columns that do not fit are cut at the right edge."""
    columns, rows = drop_spare_columns(*drop_blank_columns(columns, rows), width)
    widths = column_widths(columns, rows, width)
    head = [
        Span(fit(column.title, cells, right=column.right), "head")
        for column, cells in zip(columns, widths, strict=True)
    ]
    return [_join_spans(head), *(_join_spans(_row_spans(columns, row, widths)) for row in rows)]


def _row_spans(columns: Sequence[TableColumn], row: TableRow, widths: Sequence[int]) -> list[Span]:
    return [
        Span(fit(cell.text, cells, right=column.right), cell.style)
        for column, cell, cells in zip(columns, row.cells, widths, strict=True)
    ]


def _join_spans(spans: Sequence[Span]) -> Line:
    line: list[Span] = []
    for span in spans:
        if line:
            line.append(Span(" "))
        line.append(span)
    return tuple(line)


def number_cell(text: str, value: float | None) -> Cell:
    """Return a number's cell: sorted by its value, unknown ones last and dim."""
    return Cell(text, value, "" if value is not None else "stale")
