"""Lines to strips: the last step before the terminal. Nothing here is parsed as markup."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from dba_console.panels.cells import Line, Span, cut, fit_line, line_width, width
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


def wrap(text: str, cells: int) -> list[str]:
    """`text` broken into lines of at most `cells` cells, between words where there is a blank to break at.

    >>> wrap("select a, b from c", 9)
    ['select a,', 'b from c']
    """
    lines: list[str] = []
    rest = text
    while width(rest) > cells > 0:
        head = _prefix(rest, cells)
        blank = head.rfind(" ") if not rest[len(head) : len(head) + 1].isspace() else len(head)
        if blank <= 0:
            blank = max(1, len(head))
        lines.append(rest[:blank].rstrip())
        rest = rest[blank:].lstrip()
    return [*lines, rest]


def _prefix(text: str, cells: int) -> str:
    if text.isascii():
        return text[:cells]
    return cut(text + "…", cells + 1).removesuffix("…")


def wrap_line(spans: Line, cells: int) -> list[Line]:
    """A line of spans broken to `cells` cells. One span is broken between words, several at the edge."""
    if line_width(spans) <= cells:
        return [spans]
    if len(spans) == 1:
        return [(Span(text, spans[0].style),) for text in wrap(spans[0].text, cells)]
    lines: list[Line] = []
    rest = spans
    while rest:
        first = _first_cells(rest, cells)
        taken = line_width(first)
        if taken == 0:
            break
        lines.append(first)
        rest = shift(rest, taken)
    return lines


def _first_cells(spans: Line, cells: int) -> Line:
    kept: list[Span] = []
    for text, style in spans:
        if cells <= 0:
            break
        piece = text if width(text) <= cells else _prefix(text, cells)
        kept.append(Span(piece, style))
        cells -= width(piece)
    return tuple(kept)
