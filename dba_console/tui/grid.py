"""A table under the operator's hands: sorted, filtered, scrolled, a row selected. Pure state, no drawing.

Upheld here: the selection is a row's identity, never a position. It stays on its row through every update and new
order, and a row that is gone is said to be gone instead of the next one taking its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dba_console.panels.text_elements import Table, TableColumn, TableRow, width

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
