"""Lines broken to the width of the screen, between words, every piece with its meaning."""

from __future__ import annotations

from collections.abc import Iterable

from dba_console.panels.text_elements import Line, Span, line_width, width


def line_breaks(text: str, cells: int) -> list[tuple[int, int]]:
    """Where `text` is broken into lines of at most `cells` cells: start and end of each, blanks at the ends left out.

    Between words where there is a blank to break at, else at the edge; a single sign wider than the line stands alone.
    """
    pieces: list[tuple[int, int]] = []
    start = 0
    while start < len(text) and width(text[start:]) > cells:
        end = start + max(1, _characters_that_fit(text, start, cells))
        blank = text.rfind(" ", start, end + 1)
        if blank > start:
            end = blank
        pieces.append((start, start + len(text[start:end].rstrip())))
        while end < len(text) and text[end] == " ":
            end += 1
        start = end
    return [*pieces, (start, len(text))] if start < len(text) or not pieces else pieces


def _characters_that_fit(text: str, start: int, cells: int) -> int:
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
    return [text[start:end] for start, end in line_breaks(text, cells)]


def wrap_line(spans: Line, cells: int) -> list[Line]:
    """A line of spans broken to `cells` cells between words, every piece with its meaning."""
    if line_width(spans) <= cells:
        return [spans]
    text = "".join(span.text for span in spans)
    return [_slice(spans, start, end) for start, end in line_breaks(text, cells)]


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
