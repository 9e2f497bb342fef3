"""A panel in full: its facts, one of its tables, and the selected row with all its details."""

from __future__ import annotations

from typing import Any

from dba_console.tui.keys import ScreenName, find_key, panel_kind
from dba_console.tui.screen_view import Scene
from dba_console.tui.table_view import Grid, divide_height, grid_lines, max_columns_scrolled, row_pane, title_line
from dba_console.watch.drawing.overview import FrameWithHistory, panel_title, title_rule
from dba_console.watch.drawing.text_elements import Detail, Line, Span, Table, fit_line, line, line_text, wrap_lines
from dba_console.watch.frames.model import Frame

MIN_TABLE = 6
"""Lines the table keeps when facts or the open row need more."""
_ROOMY = 18
"""From this height on a blank line separates facts from tables."""


class DetailView:
    """One panel. Its tables keep sorting, filter and selection for as long as the view exists."""

    where: ScreenName = "detail"
    always_selects = False
    """A row is selected whenever there is one, because enter acts on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.row_open = False
        """True if the selected row is open and takes half of the screen."""
        self._grids: dict[str, Grid] = {}
        self._no_grid = Grid(Table("", (), ()))
        self._current = ""
        self._frame: Frame | None = None
        self._head: list[Line] = []
        self._width = 0
        self._tops: dict[str, int] = {}
        """The first line of each table shown."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Actions for the footer; switching tables only if there are several."""
        turn = ("table_next",) if len(self._grids) > 1 else ()
        return ("back", "row", *turn, "filter", "sort_next", "space", "time", "copy", "help", "quit")

    @property
    def has_tables(self) -> bool:
        return bool(self._grids)

    @property
    def grid(self) -> Grid:
        """The table the keys act on; without columns and rows if no table is shown."""
        return self._grids.get(self._current, self._no_grid)

    @property
    def selected(self) -> str | None:
        """The identity of the selected row, also after it is gone."""
        return self.grid.selected

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        if scene.frame is None:
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        self._lay_out(scene.frame, scene, width)
        return self._fit_lines(width, height)

    def _fit_lines(self, width: int, height: int) -> list[Line]:
        """Fit the laid-out lines into the space available."""
        grid = self.grid
        if not self.has_tables:
            return self._head[:height]
        if self.always_selects and grid.selected is None:
            grid.select(0)
        pane = self._pane(grid, width, height)
        head = self._head[: max(0, height - len(pane) - MIN_TABLE)]
        if height >= _ROOMY:
            head = [*head, ()]
        body = self._tables(len(head), width, max(3, height - len(head) - len(pane)))
        return [*head, *body, *pane][:height]

    def _pane(self, grid: Grid, width: int, height: int) -> list[Line]:
        """The selected row with all its details."""
        return row_pane(grid, width, height, opened=self.row_open)

    def _tables(self, top: int, width: int, height: int) -> list[Line]:
        """The table the keys act on, and as much of the others as fits."""
        names = list(self._grids)
        current = names.index(self._current) if self._current in names else 0
        given = divide_height([len(grid.rows) for grid in self._grids.values()], current, height)
        hidden = [self._title(name) for name, lines in zip(names, given, strict=True) if not lines]
        self._tops = {}
        body: list[Line] = []
        for name, lines in zip(names, given, strict=True):
            if lines:
                self._tops[name] = top + len(body)
                in_use = name == self._current
                grid = self._grids[name]
                # Rows first: the title shows how many of them are visible, known only after layout.
                rows = grid_lines(grid, width, lines - 1)
                title = title_line(grid, hidden if in_use else (), width, in_use=in_use and len(names) > 1)
                body += [title, *rows]
        return body

    def _title(self, name: str) -> str:
        return self._grids[name].table.title or name

    # Keys

    def do_row_up(self) -> None:
        self.grid.move(-1)

    def do_row_down(self) -> None:
        self.grid.move(1)

    def do_page_up(self) -> None:
        self.wheel(-max(1, self.grid.height - 1))

    def do_page_down(self) -> None:
        self.wheel(max(1, self.grid.height - 1))

    def do_top(self) -> None:
        self.grid.to_top()

    def do_row(self) -> None:
        """Open or close the selected row; with none selected, select the first."""
        if self.grid.selected is None:
            self.grid.move(0)
        self.row_open = not self.row_open

    def do_table_next(self) -> None:
        self._switch_table(1)

    def do_table_previous(self) -> None:
        self._switch_table(-1)

    def do_sort_next(self) -> None:
        self.grid.sort_by_adjacent(1)

    def do_sort_previous(self) -> None:
        self.grid.sort_by_adjacent(-1)

    def do_invert(self) -> None:
        self.grid.invert()

    def do_scroll_right(self) -> None:
        self._scroll(1)

    def do_scroll_left(self) -> None:
        self._scroll(-1)

    def back(self) -> bool:
        """Close one thing: the row with its selection, or the filter. Returns False if nothing is left to close."""
        grid = self.grid
        if self.always_selects:
            grid.unselect()
        if self.row_open or grid.selected is not None:
            self.row_open = False
            grid.unselect()
        elif grid.filter:
            grid.set_filter("")
        else:
            return False
        return True

    @property
    def selected_key(self) -> str | None:
        """The identity of the selected row, if it is still there."""
        return None if self.grid.gone else self.grid.selected

    def copied_text(self) -> str:
        row = None if self.grid.selected is None else self.grid.last_row
        return "" if row is None else row.copied or "\n".join(map(line_text, row.detail()))

    def click(self, row: int, column: int) -> str | None:
        """Select the row, sort by the heading; a click on the selected row opens it like enter."""
        for name, top in self._tops.items():
            if row >= top:
                self._current = name
        before, line_number = self.selected_key, row - self._tops.get(self._current, row)
        if line_number == 1:
            self.grid.sort_at(column)
        elif line_number > 1 and self.grid.select(self.grid.top + line_number - 2) and before == self.selected_key:
            key = find_key(self.where, "enter")
            return None if key is None else key.action
        return None

    def wheel(self, rows: int) -> None:
        self.grid.scroll(rows)

    # Internals

    def _lay_out(self, frame: Frame, scene: Scene, width: int) -> None:
        """Build the tables of a frame once: a key on the same frame only moves within them."""
        if frame is self._frame and width == self._width:
            return
        self._frame, self._width = frame, width
        detail = panel_kind(self.name).detail(frame, width, scene.history)
        words = panel_title(self.name, FrameWithHistory(frame, scene.history), width)
        self._head = [fit_line(title_rule(words, width), width), *wrap_lines(detail.head, width)]
        self._update(detail)

    def _update(self, detail: Detail) -> None:
        grids: dict[str, Grid] = {}
        for table in detail.tables:
            known = self._grids.get(table.id)
            if known is None:
                known = Grid(table)
            else:
                known.update(table)
            grids[table.id] = known
        self._grids = grids
        if self._current not in grids:
            self._current = next(iter(grids), "")

    def _switch_table(self, direction: int) -> None:
        names = list(self._grids)
        if self._current in names:
            self._current = names[(names.index(self._current) + direction) % len(names)]
            self.row_open = False

    def _scroll(self, columns: int) -> None:
        if self.has_tables:
            self.grid.scroll_sideways(columns, max_columns_scrolled(self.grid, self._width))


# Sessions and locks: panels whose rows are backends, which can be ticked to act on them.

BACKEND_PANELS = frozenset({"sessions", "locks"})
"""Tables whose rows are keyed by pid and start of the backend."""


def parse_backend_key(key: str) -> dict[str, Any] | None:
    """Return the backend of a row; None if it is not one (a prepared transaction) or its start is not known.

    >>> parse_backend_key("812 2026-11-20T14:53:07.000000Z 100")
    {'pid': 812, 'backend_start': '2026-11-20T14:53:07.000000Z'}
    >>> parse_backend_key("0 None ") is None
    True
    """
    pid, _, rest = key.partition(" ")
    start = rest.partition(" ")[0]
    if not pid.isdigit() or pid == "0" or start in ("", "None"):
        return None
    return {"pid": int(pid), "backend_start": start}


class BackendsView(DetailView):
    """A table of backends. Rows are ticked by identity: a tick stays with its backend when the table is sorted."""

    where: ScreenName = "backends"

    @property
    def hints(self) -> tuple[str, ...]:
        turn = ("table_next",) if len(self._grids) > 1 else ()
        return ("back", "row", "tick", "cancel", "terminate", *turn, "filter", "space", "time", "copy", "help", "quit")

    def do_tick(self) -> None:
        """Tick or untick the selected row and select the next one."""
        grid = self.grid
        if grid.selected is not None and not grid.gone:
            grid.tick(grid.selected)
            grid.move(1)
        elif grid.selected is None:
            grid.move(1)  # select the first row; never tick a row before the operator has seen it selected

    def chosen_backends(self) -> tuple[list[dict[str, Any]], int]:
        """Return the backends to act on (the ticked rows, else the selected one), and how many ticked ones are gone."""
        grid = self.grid
        keys = grid.ticked or ({grid.selected} if grid.selected is not None and not grid.gone else set())
        there = [row.key for row in grid.table.rows if row.key in keys]
        found = {
            (one["pid"], one["backend_start"]): one for key in there if (one := parse_backend_key(key)) is not None
        }
        return list(found.values()), len(keys) - len(there)

    def untick(self) -> None:
        """Remove all ticks after the request was sent."""
        self.grid.untick()

    def back(self) -> bool:
        """Remove the ticks before leaving the panel, so that no hidden tick remains."""
        if super().back():
            return True
        if not self.grid.ticked:
            return False
        self.grid.untick()
        return True
