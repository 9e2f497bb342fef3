"""Styled lines of a terminal as SVG: local fonts only, nothing fetched, every word at the place of its cell.

A word is placed by its first cell and given its length, so that columns stay columns whatever font the viewer has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from rich.segment import Segment
from rich.style import Style

from dba_console.watch.panels.text_elements import width
from screenshots.glyphs import HEIGHT, WIDTH, number, shape

MARGIN = 14.0
FONT = "'DejaVu Sans Mono','Menlo','Consolas','Liberation Mono',monospace"
_BASELINE = 12.9
_PAPER, _INK = "#14171c", "#cfd4dc"
_COLOURS = {
    "black": "#2b303a", "red": "#f0727a", "green": "#8fcb6b", "yellow": "#ecc46c", "blue": "#5c9fe8",
    "magenta": "#cf8fe6", "cyan": "#5fc3cf", "white": "#cfd4dc",
}  # fmt: skip
"""The eight colours the screen uses, as a terminal theme has them."""
_WORD = re.compile(r"[!-~]+(?: [!-~]+)*|[^\s]")
"""Runs of ASCII words; any other sign stands alone, since fonts do not agree on their widths."""


def drawing(rows: Sequence[Sequence[Segment]], columns: int) -> str:
    """The rows as one SVG document, `columns` cells wide."""
    wide, high = columns * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    texts: list[str] = []
    papers: list[str] = []
    shapes: dict[str, list[str]] = {}
    for row, segments in enumerate(rows):
        for column, text, style in _placed(segments):
            ink, faint, bold, reverse = _look(style)
            if reverse:
                papers.append(_rectangle(column, row, width(text), ink))
                ink = _PAPER
            marks = f'fill="{ink}"' + (' opacity=".6"' if faint else "")
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
            f'<rect width="100%" height="100%" rx="8" fill="{_PAPER}"/>',
            f'<g transform="translate({number(MARGIN)} {number(MARGIN)})" font-family="{FONT}" font-size="14" '
            'xml:space="preserve">',
            *papers,
            *paths,
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


def _placed(segments: Sequence[Segment]) -> Iterator[tuple[int, str, Style]]:
    column = 0
    for text, style, control in segments:
        if control:
            continue
        yield column, text, style or Style.null()
        column += width(text)


def _look(style: Style) -> tuple[str, bool, bool, bool]:
    """Ink, faint, bold, reverse."""
    name = style.color.name if style.color is not None else ""
    return _COLOURS.get(name, _INK), bool(style.dim), bool(style.bold), bool(style.reverse)


def _words(text: str) -> Iterator[tuple[int, str]]:
    """Words and the cells they begin at."""
    for found in _WORD.finditer(text):
        yield width(text[: found.start()]), found[0]


def _word(column: int, row: int, word: str, marks: str) -> str:
    x, y = column * WIDTH, row * HEIGHT + _BASELINE
    length = f' textLength="{number(len(word) * WIDTH)}" lengthAdjust="spacingAndGlyphs"' if len(word) > 1 else ""
    return f'<text x="{number(x)}" y="{number(y)}" {marks}{length}>{escape(word, quote=False)}</text>'


def _rectangle(column: int, row: int, cells: int, ink: str) -> str:
    place = f'x="{number(column * WIDTH)}" y="{number(row * HEIGHT)}"'
    return f'<rect {place} width="{number(cells * WIDTH)}" height="{number(HEIGHT)}" fill="{ink}"/>'
