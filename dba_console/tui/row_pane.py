"""The selected row in full, below the table: all columns and the whole query, wrapped. Pure."""

from __future__ import annotations

from dba_console.panels.text_elements import Line, Span, line
from dba_console.panels.wrapping import wrap_lines
from dba_console.tui.grid import Grid

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
