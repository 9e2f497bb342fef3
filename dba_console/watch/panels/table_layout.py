"""A table as lines of text, and which columns shrink if the line is too short.

The screen draws tables itself, from the same declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from dba_console.watch.panels.text_elements import Cell, Line, Span, Table, TableColumn, TableRow, fit, text_width

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
