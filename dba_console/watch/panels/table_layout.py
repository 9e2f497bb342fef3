"""A table as lines of text, and what gives way where a line is too short for all columns.

The screen draws tables itself, from the same declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from dba_console.watch.panels.text_elements import Cell, Line, Span, Table, TableColumn, TableRow, fit
from dba_console.watch.panels.text_elements import width as cells_of

_MIN_GROWING_WIDTH = 30
_MIN_TEXT_WIDTH = 8
_WIDE = 150


def column_widths(columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int) -> list[int]:
    """The cells each column gets: what it needs, at most what it declares. The growing one takes what is left, and what
    that leaves goes to other columns of words that are cut.

    Where that is too much, the widest columns of words give way, those a row is known by last; numbers never do.
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
    """What the column needs, at most what it declares; a growing one asks for little and may get more."""
    return min(_longest_width(column, rows, index), _growing_width(column, width) if column.grow else column.width)


def _growing_width(column: TableColumn, width: int) -> int:
    """What a growing column asks for; of a wide line a third, because there a query can be read."""
    return min(column.width, width // 3 if width >= _WIDE else _MIN_GROWING_WIDTH)


def _longest_width(column: TableColumn, rows: Sequence[TableRow], index: int) -> int:
    return max([cells_of(column.title), *(cells_of(row.cells[index].text) for row in rows)])


def _drop_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow], dropped: set[int]
) -> tuple[list[TableColumn], list[TableRow]]:
    kept = [index for index in range(len(columns)) if index not in dropped]
    return [columns[index] for index in kept], [TableRow(row.key, tuple([row.cells[i] for i in kept])) for row in rows]


def drop_blank_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow]
) -> tuple[list[TableColumn], list[TableRow]]:
    """The table without columns that are blank in every row; an unknown value is not blank."""
    blank = {index for index in range(len(columns)) if rows and not any(row.cells[index].text for row in rows)}
    return _drop_columns(columns, rows, blank)


def drop_spare_columns(
    columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int
) -> tuple[list[TableColumn], list[TableRow]]:
    """The table without the spare columns for which `width` has no room, the sparest first."""
    return _drop_columns(
        columns,
        rows,
        _columns_to_drop(columns, [_needed_width(*one, rows, width) for one in enumerate(columns)], width),
    )


def move_spare_columns_last(table: Table, width: int) -> Table:
    """The table with the spare columns that do not fit behind the others: one scrolls to them, they are not in the way.

    Goes by the declared widths, so that columns keep their places while what stands in them changes.
    """
    columns = table.columns
    moved = _columns_to_drop(
        columns, [_growing_width(column, width) if column.grow else column.width for column in columns], width
    )
    if not moved:
        return table
    order = [*(index for index in range(len(columns)) if index not in moved), *sorted(moved)]
    pick = itemgetter(*order)
    rows = tuple([TableRow(row.key, pick(row.cells), row.detail, row.indent) for row in table.rows])
    return replace(table, columns=tuple(columns[index] for index in order), rows=rows)


def _columns_to_drop(columns: Sequence[TableColumn], cells: Sequence[int], width: int) -> set[int]:
    """The columns to do without so that the rest fits, the sparest first."""
    over = sum(cells) + len(cells) - 1 - width
    dropped: set[int] = set()
    for index in sorted(range(len(columns)), key=lambda index: -columns[index].spare):
        if over <= 0 or columns[index].spare == 0:
            break
        dropped.add(index)
        over -= cells[index] + 1
    return dropped


def table_lines(columns: Sequence[TableColumn], rows: Sequence[TableRow], width: int) -> list[Line]:
    """Head and rows, each at most `width` cells: columns that do not fit any more are cut at the right edge."""
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
    """A number's cell: sorts by its value, unknown ones last and dim."""
    return Cell(text, value, "" if value is not None else "stale")
