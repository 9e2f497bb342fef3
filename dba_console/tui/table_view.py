"""A table on the screen: its state (sorting, filter, scrolling, selection), and its lines.

The selection is a row's identity, never a position. It stays on its row through updates and sorting; if the row is
gone, that is shown, and no other row is selected instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dba_console.watch.drawing.text_elements import (
    Cell,
    Line,
    Span,
    Table,
    TableColumn,
    TableRow,
    fit,
    fit_line,
    line,
    text_width,
    wrap_lines,
)

_INDENT = 2
_MAX_GROWING_WIDTH = 240
"""Cells that a growing column's text is measured up to."""


def sort_value(value: Any) -> tuple[int, Any]:
    """Return a sort key that orders numbers before texts; the caller keeps unknown values apart."""
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, str(value))


def sorted_rows(rows: list[TableRow], index: int, *, descending: bool) -> list[TableRow]:
    """Sort rows by one column; unknown values are last in both directions, equal rows keep their order."""
    known = [row for row in rows if row.cells[index].value is not None]
    unknown = [row for row in rows if row.cells[index].value is None]
    known.sort(key=lambda row: sort_value(row.cells[index].value), reverse=descending)
    return known + unknown


def filter_rows(rows: list[TableRow], text: str) -> list[TableRow]:
    """Return the rows with `text` in any cell, case-insensitive."""
    if not text:
        return rows
    wanted = text.casefold()
    return [row for row in rows if any(wanted in cell.text.casefold() for cell in row.cells)]


def _widest_text(rows: Sequence[TableRow], column: int) -> int:
    """Return the cells of the widest text in a column."""
    texts = [row.cells[column].text for row in rows]
    # Counting characters is exact, and fast, if every character takes one cell.
    return max(map(len if "".join(texts).isascii() else text_width, texts), default=0)


class Grid:
    """One table's state. `rows` are those shown, in order; `top` is the index of the first one on the screen."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sort = table.sort
        self.descending = self._default_descending(table.sort)
        self.filter = ""
        self.selected: str | None = None
        self.last_row: TableRow | None = None
        """The selected row as last seen."""
        self.gone = False
        """The selected row no longer exists."""
        self.ticked: set[str] = set()
        """Ticked rows, by identity; a row that is gone stays ticked until unticked."""
        self.top = 0
        self.columns_scrolled = 0
        self.height = 1
        """Rows that fit on the screen; set by the layout."""
        self.headings: list[tuple[str, int, int]] = []
        """Columns on the screen with the cells of their headings, set by the layout."""
        self._position = 0
        self.rows: list[TableRow] = []
        self.needed = [0] * len(table.columns)
        """Cells the columns have needed so far: widths only grow, so columns do not jump. For text columns at most the
        declared width."""
        self.longest = [0] * len(table.columns)
        """The same without that limit, for wide screens."""
        self.update(table)

    def update(self, table: Table) -> None:
        """Take the table of another moment; sorting, filter, selection and ticks stay."""
        before = dict(zip((column.id for column in self.table.columns), self.needed, strict=False))
        longest = dict(zip((column.id for column in self.table.columns), self.longest, strict=False))
        # With another screen width columns have other positions.
        self.needed = [before.get(column.id, 0) for column in table.columns]
        self.longest = [longest.get(column.id, 0) for column in table.columns]
        self.table = table
        self._measure()
        if self.sort is not None and self._column(self.sort) is None:
            self.sort, self.descending = table.sort, self._default_descending(table.sort)
        self._arrange()

    # Order and filter

    def sort_by(self, column_id: str) -> None:
        """Sort by a column in its natural direction; the second time reverse it."""
        if self.sort == column_id:
            self.descending = not self.descending
        else:
            self.sort, self.descending = column_id, self._default_descending(column_id)
        self._arrange()

    def sort_by_name(self, text: str) -> None:
        """Sort by the first column whose title begins with the text; an unknown one changes nothing."""
        wanted = text.strip().casefold()
        columns = [one for one in self.table.columns if wanted and one.title.casefold().startswith(wanted)]
        if columns and self.sort != columns[0].id:
            self.sort_by(columns[0].id)

    def sort_at(self, cell: int) -> None:
        """Sort by the column whose heading is at that cell; the second time reverse it."""
        for column_id, start, end in self.headings:
            if start <= cell < end:
                self.sort_by(column_id)

    def sort_by_adjacent(self, direction: int) -> None:
        """Sort by the next (+1) or previous column; after the last one comes the original order."""
        choices: list[str | None] = [column.id for column in self.table.columns]
        if self.table.sort is None:
            choices.append(None)
        index = choices.index(self.sort) if self.sort in choices else -1
        self.sort = choices[(index + direction) % len(choices)]
        self.descending = self._default_descending(self.sort)
        self._arrange()

    def invert(self) -> None:
        self.descending = not self.descending
        self._arrange()

    def set_filter(self, text: str) -> None:
        self.filter = text
        self._arrange()

    # Selection and scrolling

    def move(self, rows: int) -> None:
        """Move the selection by that many rows; the first time select the first row on the screen."""
        if not self.rows:
            return
        index = self.top if self.selected is None else self._position + rows
        if self.gone and rows > 0:
            index -= 1  # the next row has moved up to this position
        self.select(max(0, min(index, len(self.rows) - 1)))

    def select(self, position: int) -> bool:
        """Select the row at that position of the rows shown. Returns False if the position is beyond them."""
        if not 0 <= position < len(self.rows):
            return False
        self._position, self.last_row, self.gone = position, self.rows[position], False
        self.selected = self.last_row.key
        self.scroll_to_selection()
        return True

    def tick(self, key: str) -> None:
        """Tick a row to act on, or untick it."""
        self.ticked ^= {key}

    def untick(self) -> None:
        self.ticked.clear()

    def unselect(self) -> None:
        self.selected, self.last_row, self.gone = None, None, False

    def scroll(self, rows: int) -> None:
        """Scroll the view if nothing is selected, else move the selection."""
        if self.selected is not None:
            self.move(rows)
        else:
            self.top = max(0, min(self.top + rows, len(self.rows) - self.height))

    def to_top(self) -> None:
        if self.selected is None:
            self.top = 0
        else:
            self.select(0)

    def scroll_sideways(self, columns: int, limit: int) -> None:
        self.columns_scrolled = max(0, min(self.columns_scrolled + columns, limit))

    def scroll_to_selection(self) -> None:
        """Scroll the selected row into view, and the view into the table."""
        if self.selected is not None and not self.gone:
            self.top = min(max(self.top, self._position - self.height + 1), self._position)
        self.top = max(0, min(self.top, len(self.rows) - self.height))

    @property
    def position(self) -> int | None:
        """Index of the selected row among the rows shown, None if it is not shown."""
        return self._position if self.selected is not None and not self.gone else None

    # Internals

    def _arrange(self) -> None:
        rows = filter_rows(list(self.table.rows), self.filter)
        index = None if self.sort is None else self._index(self.sort)
        if index is not None:
            rows = sorted_rows(rows, index, descending=self.descending)
        elif self.sort is None and self.descending:
            rows.reverse()
        self.rows = rows
        self._find_selected()
        self.scroll_to_selection()

    def _measure(self) -> None:
        rows = self.table.rows
        deepest = _INDENT * max((row.indent for row in rows), default=0)
        for index, column in enumerate(self.table.columns):
            indent = deepest if index == 0 else 0
            limit = (_MAX_GROWING_WIDTH if column.grow else column.width) + indent
            if self.needed[index] < limit or not column.right:
                # One more cell for the sort symbol.
                wanted = max(text_width(column.title) + 1, _widest_text(rows, index) + indent)
                self.needed[index] = max(self.needed[index], min(limit, wanted))
                self.longest[index] = max(self.longest[index], min(_MAX_GROWING_WIDTH, wanted))

    def _find_selected(self) -> None:
        if self.selected is None:
            return
        for index, row in enumerate(self.rows):
            if row.key == self.selected:
                self._position, self.last_row, self.gone = index, row, False
                return
        self.gone = True

    def _default_descending(self, column_id: str | None) -> bool:
        column = None if column_id is None else self._column(column_id)
        return column is not None and column.descending

    def _column(self, column_id: str) -> TableColumn | None:
        return next((column for column in self.table.columns if column.id == column_id), None)

    def _index(self, column_id: str) -> int | None:
        return next((index for index, column in enumerate(self.table.columns) if column.id == column_id), None)


# Layout of a grid: title line, column titles, rows. Pure: state and size in, lines out.

GAP = 1
"""Cells between two columns."""
_MIN_READABLE = 8
"""Fewest useful cells of a growing column."""
_MIN_GROWING_WIDTH = 20
"""Cells a growing column keeps when space is short, or a third of the line; beyond that the table scrolls
sideways."""


def column_widths(
    columns: Sequence[TableColumn], needed: Sequence[int], cells: int, longest: Sequence[int] = ()
) -> list[int]:
    """Return each column's cells. The growing column gets what the others on the screen leave, at most what it needs;
    the rest goes to other text columns that are cut: `longest` is what they would need.

    Columns that do not fit are off the screen: the columns on it do not shrink for them.
    """
    grows = next((index for index, column in enumerate(columns) if column.grow), None)
    widths = list(needed)
    if grows is not None:
        before = _total_width(widths[:grows]) + GAP if grows else 0
        # The growing column is the one read most: it stays on the screen with whatever is left of that third.
        least = min(max(_MIN_GROWING_WIDTH, cells // 3), max(_MIN_READABLE, cells - before))
        widths[grows] = min(least, widths[grows])
    left = cells - _total_width(widths[: count_fitting(widths, cells)])
    widths = [
        min(own, cells_of + max(0, left)) if column.grow else cells_of
        for column, own, cells_of in zip(columns, needed, widths, strict=True)
    ]
    left = cells - _total_width(widths)
    for index, most in enumerate(longest if left > 0 else ()):
        if not columns[index].right and most > widths[index]:
            more = min(most - widths[index], left)
            widths[index] += more
            left -= more
    return widths


def count_fitting(widths: Sequence[int], cells: int) -> int:
    """Return how many columns fit entirely, from the left, but at least one."""
    return next((count for count in range(len(widths), 1, -1) if _total_width(widths[:count]) <= cells), 1)


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def max_columns_scrolled(grid: Grid, cells: int) -> int:
    """Return how many columns to scroll past until the last one fits entirely; 0 if all fit."""
    most = max(0, len(grid.table.columns) - 2)
    fits = (
        left
        for left in range(most)
        if count_fitting(_widths(grid, left, cells), cells) == len(_visible_columns(grid, left))
    )
    return next(fits, most if count_fitting(_widths(grid, 0, cells), cells) < len(grid.table.columns) else 0)


def _widths(grid: Grid, columns_scrolled: int, cells: int) -> list[int]:
    """Return the cells of the columns on the screen; the first one, which names the row, always stays."""
    places = _visible_columns(grid, columns_scrolled)
    needed, longest = ([of[index] for index in places] for of in (grid.needed, grid.longest))
    return column_widths([grid.table.columns[index] for index in places], needed, cells, longest)


def _visible_columns(grid: Grid, columns_scrolled: int) -> list[int]:
    return [0, *range(1 + columns_scrolled, len(grid.table.columns))]


def grid_lines(grid: Grid, cells: int, height: int) -> list[Line]:
    """Return the table in exactly `height` lines of at most `cells` cells: column titles, then rows from `top`."""
    grid.height = max(1, height - 1)
    grid.scroll_to_selection()
    grid.columns_scrolled = min(grid.columns_scrolled, max_columns_scrolled(grid, cells))
    widths = _widths(grid, grid.columns_scrolled, cells)
    # Half a column looks like a shorter number; only a column wider than the screen is cut.
    count = max(count_fitting(widths, cells), 2 if grid.columns_scrolled else 1)
    shown_columns = list(zip(_visible_columns(grid, grid.columns_scrolled), widths[:count], strict=False))
    grid.headings, start = [], 0
    for place, taken in shown_columns:
        grid.headings.append((grid.table.columns[place].id, start, start + taken))
        start += taken + GAP
    lines = [_header_line(grid, shown_columns)]
    lines += [_row(grid, row, shown_columns) for row in grid.rows[grid.top : grid.top + grid.height]]
    if not grid.rows:
        lines.append(line(Span(f" {_empty_text(grid)}", "dim")))
    lines += [()] * (height - len(lines))
    shown = [fit_line(spans, cells) for spans in lines[:height]]
    index = grid.position
    if index is not None and 0 <= index - grid.top < grid.height and index - grid.top + 1 < height:
        shown[index - grid.top + 1] = _selected(shown[index - grid.top + 1])
    return shown


def title_line(grid: Grid, others: Sequence[str], cells: int, *, in_use: bool = False) -> Line:
    """Return the title, the rows shown, sorting, filter, and whether the selected row is gone."""
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
        parts.append(Span(f" · {len(grid.ticked)} chosen ●", "changed"))
    if grid.gone:
        parts.append(Span(f" · the selected row is {_gone_text(grid)}", "warn"))
    if grid.columns_scrolled:
        passed = f"{grid.columns_scrolled} column{'s' if grid.columns_scrolled > 1 else ''}"
        parts.append(f" · {passed} to the left: `,`")
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
    """`shown` holds the indexes of the columns with their cells."""
    spans: list[Span] = []
    for index, cells in shown:
        column = grid.table.columns[index]
        sign = ("▼" if grid.descending else "▲") if column.id == grid.sort else ""
        if sign and text_width(column.title) + 1 > cells:
            text = column.title[: max(0, cells - 1)] + sign
        else:
            text = column.title + sign
        spans.append(Span(fit(text, cells, right=column.right), "key" if sign else "head"))
        spans.append(Span(" " * GAP))
    return tuple(spans)


def _row(grid: Grid, row: TableRow, shown: Sequence[tuple[int, int]]) -> Line:
    indent = row.indent * _INDENT if grid.sort is None else 0
    spans: list[Span] = []
    for index, cells in shown:
        right = grid.table.columns[index].right
        spans.append(_cell(row.cells[index], cells, right=right, indent=indent if index == 0 else 0))
        ticked = index == 0 and row.key in grid.ticked
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


# How several tables share one screen.

MIN_CURRENT, MIN_OTHER = 10, 4
"""Lines kept by the table in use, and the minimum for another to be shown: title, column titles, two rows."""


def divide_height(rows: Sequence[int], current: int, height: int) -> list[int]:
    """Return lines for each table, title and headings included, that add up to `height`; 0 for a hidden table.

    `rows` are the tables' row counts, `current` is the index of the one in use. Others are shown while the one in use
    keeps MIN_CURRENT lines, or all that it needs. What is left goes to the one in use, then to the others in order.

    >>> divide_height([3, 2], 0, 20), divide_height([50, 2], 0, 20)
    ([5, 15], [16, 4])
    >>> divide_height([50, 50], 0, 12), divide_height([50, 9], 1, 20)
    ([12, 0], [9, 11])
    >>> divide_height([0, 9, 0, 3], 0, 15)
    [3, 5, 3, 4]
    """
    needed = [2 + max(1, count) for count in rows]
    given = [0] * len(rows)
    given[current] = min(needed[current], MIN_CURRENT, height)
    left = height - given[current]
    for index, need in enumerate(needed):
        if index != current and min(need, MIN_OTHER) <= left:
            given[index] = min(need, MIN_OTHER)
            left -= given[index]
    shown = [index for index, lines in enumerate(given) if lines]
    for index in (current, *shown):
        more = min(left, needed[index] - given[index])
        given[index] += more
        left -= more
    given[shown[-1]] += left
    return given


# The selected row below the table: all columns and the whole query, wrapped.

_MAX_LINES = 8
"""Most lines of the pane until it is opened; then it gets half of the screen."""


def row_pane(grid: Grid, width: int, height: int, *, opened: bool, max_lines: int = 0) -> list[Line]:
    """Return the pane's lines, a rule first; none if no row is selected or a screen of `height` has no space.

    `max_lines`, if given, limits the unopened pane.
    """
    if grid.last_row is None:
        return []
    available = height // 2 if opened else (max_lines or min(_MAX_LINES, height // 3))
    if available < 2:
        return []
    lines = wrap_lines(grid.last_row.detail(), width)
    if grid.gone:
        lines.insert(0, line(Span(" gone; shown as last seen", "warn")))
    kept = lines[: available - 1]
    if len(lines) > len(kept) and not opened:
        kept = [*kept[:-1], line(Span(" … enter: show all", "dim"))]
    return [line(Span("─" * width, "dim")), *kept]
