"""How a panel is drawn: title, key, a short form for the overview and a full form with tables.

One declaration for screen, text and documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dba_console.watch.drawing.text_elements import Detail, Line, move_spare_columns_last
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.panel import PanelFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a panel. `compact(frame, width, height, history)` gives its lines for the overview, most important
    first; `full(frame, width, history)` gives everything known."""

    name: str
    """Of the panel, as in `show --json`."""
    title: str
    key: str
    compact: Callable[[Frame, int, int, ChartHistory], list[Line]]
    full: Callable[[Frame, int, ChartHistory], Detail]

    def detail(self, frame: Frame, width: int, history: ChartHistory) -> Detail:
        """Return everything known, with tables arranged for a screen of `width` cells."""
        detail = self.full(frame, width, history)
        return replace(detail, tables=tuple(move_spare_columns_last(table, width) for table in detail.tables))

    def status(self, frame: Frame) -> PanelFrame | None:
        """Return the panel's status; None for the console's own panel, which has no probe."""
        found = getattr(frame, self.name, None)
        return found if isinstance(found, PanelFrame) else None
