"""A table under the operator's hands: sorted, filtered, scrolled, a row selected. Pure state, no drawing.

Upheld here: the selection is a row's identity, never a position. It stays on its row through every update and new
order, and a row that is gone is said to be gone instead of the next one taking its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dba_console.watch.panels.text_elements import (
    Cell,
    Line,
    Span,
    Table,
    TableColumn,
    TableRow,
    fit,
    fit_line,
    line,
    width,
    wrap_lines,
)

_INDENT = 2
_MAX_GROWING_WIDTH = 240
"""Cells a column that grows is measured for."""


def sort_value(value: Any) -> tuple[int, Any]:
    """A key that orders numbers before texts; unknown values are kept apart by the caller."""
    if isinstance(value, bool | int | float):
        return (0, value)
    return (1, str(value))


def sorted_rows(rows: list[TableRow], index: int, *, descending: bool) -> list[TableRow]:
    """Rows by one column; what is not known stands last either way, equal ones stay in the order given."""
    known = [row for row in rows if row.cells[index].value is not None]
    unknown = [row for row in rows if row.cells[index].value is None]
    known.sort(key=lambda row: sort_value(row.cells[index].value), reverse=descending)
    return known + unknown


def filter_rows(rows: list[TableRow], text: str) -> list[TableRow]:
    """Rows with `text` in any cell, whatever the case."""
    if not text:
        return rows
    wanted = text.casefold()
    return [row for row in rows if any(wanted in cell.text.casefold() for cell in row.cells)]


def _widest_text(rows: Sequence[TableRow], column: int) -> int:
    """Cells of the widest text in a column."""
    texts = [row.cells[column].text for row in rows]
    # Counting signs is enough, and fast, where every sign takes one cell.
    return max(map(len if "".join(texts).isascii() else width, texts), default=0)


class Grid:
    """One table's state. `rows` are the ones shown, in order; `top` is the first on screen, `left` cells scrolled."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sort = table.sort
        self.descending = self._default_descending(table.sort)
        self.filter = ""
        self.selected: str | None = None
        self.last_row: TableRow | None = None
        """The selected row as it was last seen."""
        self.gone = False
        """The selected row is not there any more."""
        self.ticked: set[str] = set()
        """Rows chosen to be acted on, by identity; one that is gone stays here until it is taken back."""
        self.top = 0
        self.columns_scrolled = 0
        self.height = 1
        """Rows the screen has room for; told by the layout."""
        self._position = 0
        self.rows: list[TableRow] = []
        self.needed = [0] * len(table.columns)
        """Cells the columns need for what they have held so far: they grow with it and do not tremble. Of words at most
        what the column declares."""
        self.longest = [0] * len(table.columns)
        """The same without that limit: for where there is room."""
        self.update(table)

    def update(self, table: Table) -> None:
        """Take the table of another moment; everything chosen stays."""
        before = dict(zip((column.id for column in self.table.columns), self.needed, strict=False))
        longest = dict(zip((column.id for column in self.table.columns), self.longest, strict=False))
        # On a screen of another width columns stand in other places.
        self.needed = [before.get(column.id, 0) for column in table.columns]
        self.longest = [longest.get(column.id, 0) for column in table.columns]
        self.table = table
        self._measure()
        if self.sort is not None and self._column(self.sort) is None:
            self.sort, self.descending = table.sort, self._default_descending(table.sort)
        self._arrange()

    # Order and filter

    def sort_by(self, column_id: str) -> None:
        """Sort by a column in its natural direction; a second time turns it around."""
        if self.sort == column_id:
            self.descending = not self.descending
        else:
            self.sort, self.descending = column_id, self._default_descending(column_id)
        self._arrange()

    def sort_key(self, key: str) -> bool:
        """Sort by the column that has this key. False where none has."""
        for column in self.table.columns:
            if column.sort_key == key:
                self.sort_by(column.id)
                return True
        return False

    def sort_by_adjacent(self, direction: int) -> None:
        """Sort by the next (+1) or previous column; past the last one comes the order given."""
        choices: list[str | None] = [column.id for column in self.table.columns]
        if self.table.sort is None:
            choices.append(None)
        place = choices.index(self.sort) if self.sort in choices else -1
        self.sort = choices[(place + direction) % len(choices)]
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
        """Select the row that many places on; the first time, the first row on the screen."""
        if not self.rows:
            return
        place = self.top if self.selected is None else self._position + rows
        if self.gone and rows > 0:
            place -= 1  # the row below has moved up into the place of the one that is gone
        self.select(max(0, min(place, len(self.rows) - 1)))

    def select(self, position: int) -> None:
        """Select the row at that place of the rows shown."""
        if 0 <= position < len(self.rows):
            self._position, self.last_row, self.gone = position, self.rows[position], False
            self.selected = self.last_row.key
            self.scroll_to_selection()

    def tick(self, key: str) -> None:
        """Choose a row to be acted on, or take the choice back."""
        self.ticked ^= {key}

    def untick(self) -> None:
        self.ticked.clear()

    def unselect(self) -> None:
        self.selected, self.last_row, self.gone = None, None, False

    def scroll(self, rows: int) -> None:
        """Move the view where nothing is selected, else the selection."""
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
        """Bring the selected row into view, and the view into the table."""
        if self.selected is not None and not self.gone:
            self.top = min(max(self.top, self._position - self.height + 1), self._position)
        self.top = max(0, min(self.top, len(self.rows) - self.height))

    @property
    def position(self) -> int | None:
        """Where the selected row stands among the rows shown, None where it does not."""
        return self._position if self.selected is not None and not self.gone else None

    # The details

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
        for place, column in enumerate(self.table.columns):
            indent = deepest if place == 0 else 0
            limit = (_MAX_GROWING_WIDTH if column.grow else column.width) + indent
            if self.needed[place] < limit or not column.right:
                # One cell more for the sign of the order.
                wanted = max(width(column.title) + 1, _widest_text(rows, place) + indent)
                self.needed[place] = max(self.needed[place], min(limit, wanted))
                self.longest[place] = max(self.longest[place], min(_MAX_GROWING_WIDTH, wanted))

    def _find_selected(self) -> None:
        if self.selected is None:
            return
        for place, row in enumerate(self.rows):
            if row.key == self.selected:
                self._position, self.last_row, self.gone = place, row, False
                return
        self.gone = True

    def _default_descending(self, column_id: str | None) -> bool:
        column = None if column_id is None else self._column(column_id)
        return column is not None and column.descending

    def _column(self, column_id: str) -> TableColumn | None:
        return next((column for column in self.table.columns if column.id == column_id), None)

    def _index(self, column_id: str) -> int | None:
        return next((place for place, column in enumerate(self.table.columns) if column.id == column_id), None)


# A grid laid out: title line, column heads, rows. Pure: state and size in, lines out.

GAP = 1
_MIN_READABLE = 8
"""Cells of a growing column that are better than none."""
"""Cells between two columns."""
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


# How several tables share one screen. Pure.

MIN_CURRENT, MIN_OTHER = 10, 4
"""Lines the table in use keeps, and what another needs to be worth showing: title, heads, two rows."""


def divide_height(rows: Sequence[int], current: int, height: int) -> list[int]:
    """Lines for each table, title and heads included, that together make `height`; 0 for one not shown.

    `rows` are the tables' numbers of rows, `current` the place of the one in use. Where all fit, each has what it needs
    and the last one what is left; else the others have little and the one in use the rest.

    >>> divide_height([3, 2], 0, 20), divide_height([50, 2], 0, 20)
    ([5, 15], [16, 4])
    >>> divide_height([50, 50], 0, 12), divide_height([50, 9], 1, 20)
    ([12, 0], [4, 16])
    """
    needed = [2 + max(1, count) for count in rows]
    if sum(needed) <= height:
        return [*needed[:-1], height - sum(needed[:-1])]
    given = [0] * len(rows)
    left = height
    for place, need in enumerate(needed):
        other = min(need, MIN_OTHER)
        if place != current and left - other >= MIN_CURRENT:
            given[place] = other
            left -= other
    given[current] = left
    return given


# The selected row in full, below the table: all columns and the whole query, wrapped. Pure.

_MAX_LINES = 8
"""Lines the row has at most until it is opened; then it has half of the screen."""


def row_pane(grid: Grid, width: int, height: int, *, opened: bool, max_lines: int = 0) -> list[Line]:
    """The pane's lines, a rule first; none where no row is selected or there is no room on a screen of `height`.

    `most` lines it may have unopened where it is given.
    """
    if grid.last_row is None:
        return []
    available = height // 2 if opened else (max_lines or min(_MAX_LINES, height // 3))
    if available < 2:
        return []
    lines = wrap_lines(grid.last_row.detail, width)
    if grid.gone:
        lines.insert(0, line(Span(" gone since; this is how it was last seen", "warn")))
    kept = lines[: available - 1]
    if len(lines) > len(kept) and not opened:
        kept = [*kept[:-1], line(Span(" … enter: all of it", "dim"))]
    return [line(Span("─" * width, "dim")), *kept]
