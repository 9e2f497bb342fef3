"""A table as lines of text, for `show` and for reports. The screen draws tables itself, from the same declaration."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.panels.cells import Cell, Column, Line, Row, Span, fit
from dba_console.panels.cells import width as cells_of

_GROW_LEAST = 16


def column_widths(table_columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """The cells each column gets: what it needs, at most what it declares; the growing one takes what is left."""
    needed = [
        min(column.width, max([cells_of(column.title), *(cells_of(row.cells[index].text) for row in rows)]))
        if not column.grow
        else _GROW_LEAST
        for index, column in enumerate(table_columns)
    ]
    left = width - sum(needed) - max(0, len(needed) - 1)
    for index, column in enumerate(table_columns):
        if column.grow and left > 0:
            longest = max([cells_of(column.title), *(_length(row, index) for row in rows)])
            needed[index] = max(cells_of(column.title), min(longest, needed[index] + left))
    return needed


def _length(row: Row, index: int) -> int:
    return cells_of(row.cells[index].text) + (2 * row.indent if index == 0 else 0)


def table_lines(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[Line]:
    """Head and rows, each at most `width` cells: columns that do not fit any more are cut at the right edge."""
    widths = column_widths(columns, rows, width)
    head = [
        Span(fit(column.title, cells, right=column.right), "head")
        for column, cells in zip(columns, widths, strict=True)
    ]
    return [_spaced(head), *(_spaced(_row_spans(columns, row, widths)) for row in rows)]


def _row_spans(columns: Sequence[Column], row: Row, widths: Sequence[int]) -> list[Span]:
    return [
        Span(fit(cell.text, cells, right=column.right), cell.style)
        for column, cell, cells in zip(columns, row.cells, widths, strict=True)
    ]


def _spaced(spans: Sequence[Span]) -> Line:
    line: list[Span] = []
    for span in spans:
        if line:
            line.append(Span(" "))
        line.append(span)
    return tuple(line)


def cell_number(text: str, value: float | None) -> Cell:
    """A number's cell: sorts by its value, unknown ones last and dim."""
    return Cell(text, value, "" if value is not None else "stale")
