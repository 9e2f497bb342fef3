"""Lines to strips: the last step before the terminal. Nothing here is parsed as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from dba_console.panels.cells import Line, Span, fit_line, line_width, width
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


def breaks(text: str, cells: int) -> list[tuple[int, int]]:
    """Where `text` is broken into lines of at most `cells` cells: start and end of each, blanks at the ends left out.

    Between words where there is a blank to break at, else at the edge; a single sign wider than the line stands alone.
    """
    pieces: list[tuple[int, int]] = []
    start = 0
    while start < len(text) and width(text[start:]) > cells:
        end = start + max(1, _signs_in(text, start, cells))
        blank = text.rfind(" ", start, end + 1)
        if blank > start:
            end = blank
        pieces.append((start, start + len(text[start:end].rstrip())))
        while end < len(text) and text[end] == " ":
            end += 1
        start = end
    return [*pieces, (start, len(text))] if start < len(text) or not pieces else pieces


def _signs_in(text: str, start: int, cells: int) -> int:
    """How many signs from `start` on fit into `cells` cells."""
    taken = 0
    for count, sign in enumerate(text[start : start + cells + 1]):
        taken += width(sign)
        if taken > cells:
            return count
    return cells


def wrap(text: str, cells: int) -> list[str]:
    """`text` broken into lines of at most `cells` cells, between words where there is a blank to break at.

    >>> wrap("select a, b from c", 9)
    ['select a,', 'b from c']
    """
    return [text[start:end] for start, end in breaks(text, cells)]


def wrap_line(spans: Line, cells: int) -> list[Line]:
    """A line of spans broken to `cells` cells between words, every piece with its meaning."""
    if line_width(spans) <= cells:
        return [spans]
    text = "".join(span.text for span in spans)
    return [_slice(spans, start, end) for start, end in breaks(text, cells)]


def wrap_lines(lines: Iterable[Line], cells: int) -> list[Line]:
    """Every line broken to `cells` cells."""
    return [piece for spans in lines for piece in wrap_line(spans, cells)]


def _slice(spans: Line, start: int, end: int) -> Line:
    kept: list[Span] = []
    place = 0
    for text, style in spans:
        piece = text[max(0, start - place) : max(0, end - place)]
        if piece:
            kept.append(Span(piece, style))
        place += len(text)
    return tuple(kept)
