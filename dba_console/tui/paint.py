"""Lines to strips: the last step before the terminal. Nothing here is parsed as markup."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from dba_console.panels.cells import Line, Span, fit_line, width
from dba_console.tui.styles import StyleTable


def paint(spans: Line, cells: int, table: StyleTable, over: RichStyle | None = None) -> Strip:
    """The line in exactly `cells` cells. `over` lies over every span's own style: the selected row."""
    fitted = fit_line(spans, cells)
    segments = [Segment(text, table[style] + over if over else table[style]) for text, style in fitted if text]
    return Strip(segments, cells)


def shift(spans: Line, cells: int) -> Line:
    """The line without its first `cells` cells: what is seen after scrolling to the right.

    A wide sign cut in half leaves a blank, so that columns stay in place.

    >>> shift((Span("ab"), Span("cdef", "ok")), 3)
    (Span(text='def', style='ok'),)
    """
    kept: list[Span] = []
    for text, style in spans:
        if cells <= 0:
            kept.append(Span(text, style))
            continue
        taken = width(text)
        if taken > cells:
            kept.append(Span(_without(text, cells), style))
        cells -= taken
    return tuple(kept)


def _without(text: str, cells: int) -> str:
    if text.isascii():
        return text[cells:]
    dropped = 0
    for index, sign in enumerate(text):
        if dropped >= cells:
            return " " * (dropped - cells) + text[index:]
        dropped += width(sign)
    return " " * max(0, dropped - cells)
