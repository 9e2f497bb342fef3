"""A grid laid out: title line, column heads, rows. Pure: state and size in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.panels.text_elements import Cell, Line, Span, TableColumn, TableRow, fit, fit_line, line, width
from dba_console.tui.grid import Grid

GAP = 1
_MIN_READABLE = 8
"""Cells of a growing column that are better than none."""
"""Cells between two columns."""
_INDENT = 2
_MIN_GROWING_WIDTH = 20
"""Cells a growing column keeps where there is no room, or a third of the line: beyond that one scrolls sideways."""


def column_widths(
    columns: Sequence[TableColumn], needed: Sequence[int], cells: int, longest: Sequence[int] = ()
) -> list[int]:
    """Each column's cells; the one that grows takes what the others on the screen leave, but never more than it needs,
    and what that leaves goes to other columns of words that are cut: `longest` is what they would need.

    Columns for which there is no room are beyond the edge: nothing on the screen gives way to them.
    """
    grows = next((place for place, column in enumerate(columns) if column.grow), None)
    widths = list(needed)
    if grows is not None:
        before = _total_width(widths[:grows]) + GAP if grows else 0
        # What grows is what one reads: it is on the screen with whatever room is left of that third, if any is.
        least = min(max(_MIN_GROWING_WIDTH, cells // 3), max(_MIN_READABLE, cells - before))
        widths[grows] = min(least, widths[grows])
    left = cells - _total_width(widths[: count_fitting(widths, cells)])
    widths = [
        min(own, cells_of + max(0, left)) if column.grow else cells_of
        for column, own, cells_of in zip(columns, needed, widths, strict=True)
    ]
    left = cells - _total_width(widths)
    for place, most in enumerate(longest if left > 0 else ()):
        if not columns[place].right and most > widths[place]:
            more = min(most - widths[place], left)
            widths[place] += more
            left -= more
    return widths


def count_fitting(widths: Sequence[int], cells: int) -> int:
    """How many columns can be seen whole, from the left, and at least one."""
    return next((count for count in range(len(widths), 1, -1) if _total_width(widths[:count]) <= cells), 1)


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def max_columns_scrolled(grid: Grid, cells: int) -> int:
    """How many columns have to be passed over so that the last one is seen whole; 0 where all fit."""
    most = max(0, len(grid.table.columns) - 2)
    fits = (
        left
        for left in range(most)
        if count_fitting(_widths(grid, left, cells), cells) == len(_visible_columns(grid, left))
    )
    return next(fits, most if count_fitting(_widths(grid, 0, cells), cells) < len(grid.table.columns) else 0)


def _widths(grid: Grid, columns_scrolled: int, cells: int) -> list[int]:
    """Cells of the columns on the screen when `left` are passed over: the first, which says what the row is, stays."""
    places = _visible_columns(grid, columns_scrolled)
    needed, longest = ([of[place] for place in places] for of in (grid.needed, grid.longest))
    return column_widths([grid.table.columns[place] for place in places], needed, cells, longest)


def _visible_columns(grid: Grid, columns_scrolled: int) -> list[int]:
    return [0, *range(1 + columns_scrolled, len(grid.table.columns))]


def grid_lines(grid: Grid, cells: int, height: int) -> list[Line]:
    """The table in exactly `height` lines of at most `cells` cells: heads first, then rows from the one on top."""
    grid.height = max(1, height - 1)
    grid.scroll_to_selection()
    grid.columns_scrolled = min(grid.columns_scrolled, max_columns_scrolled(grid, cells))
    widths = _widths(grid, grid.columns_scrolled, cells)
    # Half a column reads like a number that is not there; one that is wider than the screen is cut.
    count = max(count_fitting(widths, cells), 2 if grid.columns_scrolled else 1)
    shown_columns = list(zip(_visible_columns(grid, grid.columns_scrolled), widths[:count], strict=False))
    lines = [_header_line(grid, shown_columns)]
    lines += [_row(grid, row, shown_columns) for row in grid.rows[grid.top : grid.top + grid.height]]
    if not grid.rows:
        lines.append(line(Span(f" {_empty_text(grid)}", "dim")))
    lines += [()] * (height - len(lines))
    shown = [fit_line(spans, cells) for spans in lines[:height]]
    place = grid.position
    if place is not None and 0 <= place - grid.top < grid.height and place - grid.top + 1 < height:
        shown[place - grid.top + 1] = _selected(shown[place - grid.top + 1])
    return shown


def title_line(grid: Grid, others: Sequence[str], cells: int, *, in_use: bool = False) -> Line:
    """What the table is, how much of it is shown, by what it is sorted and filtered, and if the selection is gone."""
    mark = ">" if in_use else " "
    parts: list[str | Span] = [
        Span(f"{mark}{grid.table.title or grid.table.id}", "title"),
        f"  {_row_range_text(grid)}",
    ]
    if column := next((column for column in grid.table.columns if column.id == grid.sort), None):
        parts.append(f" · by {column.title.strip()} {'▼' if grid.descending else '▲'}")
    if grid.filter:
        parts.append(Span(f" · only with “{grid.filter}” ({len(grid.rows)} of {len(grid.table.rows)})", "changed"))
    if grid.ticked:
        parts.append(Span(f" · {len(grid.ticked)} ticked ●", "changed"))
    if grid.gone:
        parts.append(Span(f" · the selected row is {_gone_text(grid)}", "warn"))
    if grid.columns_scrolled:
        passed = f"{grid.columns_scrolled} column{'s' if grid.columns_scrolled > 1 else ''}"
        parts.append(f" · {passed} passed over, `,` goes back")
    elif max_columns_scrolled(grid, cells):
        parts.append(Span(" · `.` more columns", "dim"))
    if others:
        parts.append(Span(f" · tab: {', '.join(others)}", "dim"))
    return fit_line(line(*parts), cells)


def _gone_text(grid: Grid) -> str:
    there = any(row.key == grid.selected for row in grid.table.rows)
    return "hidden by the filter" if there else "gone"


def _row_range_text(grid: Grid) -> str:
    count = len(grid.rows)
    if count <= grid.height:
        return f"{count} row" + ("" if count == 1 else "s")
    return f"{grid.top + 1}-{min(count, grid.top + grid.height)} of {count}"


def _empty_text(grid: Grid) -> str:
    return f"no row contains “{grid.filter}”" if grid.filter and grid.table.rows else grid.table.empty


def _header_line(grid: Grid, shown: Sequence[tuple[int, int]]) -> Line:
    """`shown` are the places of columns, and their cells."""
    spans: list[Span] = []
    for place, cells in shown:
        column = grid.table.columns[place]
        sign = ("▼" if grid.descending else "▲") if column.id == grid.sort else ""
        if sign and width(column.title) + 1 > cells:
            text = column.title[: max(0, cells - 1)] + sign
        else:
            text = column.title + sign
        spans.append(Span(fit(text, cells, right=column.right), "key" if sign else "head"))
        spans.append(Span(" " * GAP))
    return tuple(spans)


def _row(grid: Grid, row: TableRow, shown: Sequence[tuple[int, int]]) -> Line:
    indent = row.indent * _INDENT if grid.sort is None else 0
    spans: list[Span] = []
    for place, cells in shown:
        right = grid.table.columns[place].right
        spans.append(_cell(row.cells[place], cells, right=right, indent=indent if place == 0 else 0))
        ticked = place == 0 and row.key in grid.ticked
        spans.append(Span("●", "changed") if ticked else Span(" " * GAP))
    return tuple(spans)


def _cell(cell: Cell, cells: int, *, right: bool, indent: int) -> Span:
    text = " " * indent + cell.text if indent else cell.text
    if text.isascii():
        count = len(text)
        if count <= cells:
            return Span(text.rjust(cells) if right else text.ljust(cells), cell.style)
    return Span(fit(text, cells, right=right), cell.style)


def _selected(spans: Line) -> Line:
    return tuple(Span(text, "selected") for text, _ in spans)
