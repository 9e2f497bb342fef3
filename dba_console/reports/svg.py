"""Draw lines of the screen as SVG, with local fonts only and every word at the position of its cell.

A word has the position of its first cell and a fixed length, so that columns are aligned in any font.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from dba_console.reports.cell_shapes import HEIGHT, WIDTH, number, shape
from dba_console.watch.panels.terminal_styles import COLOURED
from dba_console.watch.panels.text_elements import Line, Style, text_width

MARGIN = 14.0
FONT = "'DejaVu Sans Mono','Menlo','Consolas','Liberation Mono',monospace"
_BASELINE = 12.9
_BACKGROUND, _FOREGROUND = "#14171c", "#cfd4dc"
_COLOURS = {
    "black": "#2b303a", "red": "#f0727a", "green": "#8fcb6b", "yellow": "#ecc46c", "blue": "#5c9fe8",
    "magenta": "#cf8fe6", "cyan": "#5fc3cf", "white": "#cfd4dc",
}  # fmt: skip
"""The eight colours of the screen, as in a terminal theme."""
_WORD = re.compile(r"[!-~]+(?: [!-~]+)*|[^\s]")
"""Runs of ASCII words; any other character is drawn alone, because its width differs between fonts."""


def drawing(lines: Sequence[Line], columns: int) -> str:
    """Return the lines as one SVG document, `columns` cells wide."""
    wide, high = columns * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    texts: list[str] = []
    backgrounds: list[str] = []
    shapes: dict[str, list[str]] = {}
    for row, spans in enumerate(lines):
        for column, text, style in _placed(spans):
            colour, dim, bold, reverse = _attributes(style)
            if reverse:
                backgrounds.append(_rectangle(column, row, text_width(text), colour))
                colour = _BACKGROUND
            marks = f'fill="{colour}"' + (' opacity=".6"' if dim else "")
            for start, word in _words(text):
                path = shape(word, column + start, row) if len(word) == 1 else None
                if path is not None:
                    shapes.setdefault(marks, []).append(path)
                else:
                    texts.append(_word(column + start, row, word, marks + (' font-weight="700"' if bold else "")))
    paths = [f'<path {marks} d="{"".join(parts)}"/>' for marks, parts in shapes.items()]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(wide)} {number(high)}" '
            f'width="{number(wide)}" height="{number(high)}">',
            f'<rect width="100%" height="100%" rx="8" fill="{_BACKGROUND}"/>',
            f'<g transform="translate({number(MARGIN)} {number(MARGIN)})" font-family="{FONT}" font-size="14" '
            'xml:space="preserve">',
            *backgrounds,
            *paths,
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


def _placed(spans: Line) -> Iterator[tuple[int, str, Style]]:
    column = 0
    for text, style in spans:
        yield column, text, style
        column += text_width(text)


def _attributes(style: Style) -> tuple[str, bool, bool, bool]:
    """Return colour, dim, bold, reverse."""
    words = COLOURED[style].split()
    colour = next((_COLOURS[word] for word in words if word in _COLOURS), _FOREGROUND)
    return colour, "dim" in words, "bold" in words, "reverse" in words


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Yield words with their first cells."""
    for found in _WORD.finditer(text):
        yield text_width(text[: found.start()]), found[0]


def _word(column: int, row: int, word: str, marks: str) -> str:
    x, y = column * WIDTH, row * HEIGHT + _BASELINE
    length = f' textLength="{number(len(word) * WIDTH)}" lengthAdjust="spacingAndGlyphs"' if len(word) > 1 else ""
    return f'<text x="{number(x)}" y="{number(y)}" {marks}{length}>{escape(word, quote=False)}</text>'


def _rectangle(column: int, row: int, cells: int, colour: str) -> str:
    position = f'x="{number(column * WIDTH)}" y="{number(row * HEIGHT)}"'
    return f'<rect {position} width="{number(cells * WIDTH)}" height="{number(HEIGHT)}" fill="{colour}"/>'
