"""Lines to strips: the last step before the terminal. Nothing here is parsed as markup."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from dba_console.panels.text_elements import Line, fit_line
from dba_console.tui.styles import StyleTable


def paint(spans: Line, cells: int, table: StyleTable, overlay: RichStyle | None = None) -> Strip:
    """The line in exactly `cells` cells. `over` lies over every span's own style: the selected row."""
    fitted = fit_line(spans, cells)
    segments = [Segment(text, table[style] + overlay if overlay else table[style]) for text, style in fitted if text]
    return Strip(segments, cells)
