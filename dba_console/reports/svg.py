"""Draw lines of the screen as SVG, with local fonts only and every word at the position of its cell.

A word has the position of its first cell and a fixed length, so that columns are aligned in any font.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from dba_console.watch.drawing.terminal_styles import COLOURED
from dba_console.watch.drawing.text_elements import Line, Style, text_width

# Characters of bars, charts and lines as SVG shapes, so that they join at cell edges in any font.

WIDTH, HEIGHT = 8.43, 17.0
"""Size of a cell in SVG units: DejaVu Sans Mono at 14 is 0.602 × 14 wide."""
_THICK = 1.2
_BLOCKS = "▁▂▃▄▅▆▇█"
_ARMS = {
    "─": "lr", "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru",
    "┼": "lrud", "╵": "u",
}  # fmt: skip
"""Directions of a line from the middle of its cell: left, right, up, down."""


def shape(character: str, column: int, row: int) -> str | None:
    """Return the SVG path of a character in its cell; None if the font draws it."""
    x, y = column * WIDTH, row * HEIGHT
    if character in _BLOCKS:
        high = HEIGHT * (_BLOCKS.index(character) + 1) / 8
        return _box(x, y + HEIGHT - high, WIDTH, high)
    if character == "╌":
        third = WIDTH / 3
        return "".join(_box(x + part * WIDTH / 2 + third / 4, y + _middle(), third, _THICK) for part in (0, 1))
    if character == "⧗":
        return _hourglass(x, y)
    arms = _ARMS.get(character)
    return None if arms is None else "".join(_arm(arm, x, y) for arm in arms)


def _hourglass(x: float, y: float) -> str:
    """Return the hourglass, which few fonts have."""
    left, wide, top, high = x + 1.2, WIDTH - 2.4, y + 3.4, 10.0
    return f"M{number(left)} {number(top)}h{number(wide)}l{number(-wide)} {number(high)}h{number(wide)}z"


def _arm(arm: str, x: float, y: float) -> str:
    across, down = x + WIDTH / 2 - _THICK / 2, y + _middle()
    half_wide, half_high = WIDTH / 2 + _THICK / 2, HEIGHT / 2 + _THICK / 2
    match arm:
        case "l":
            return _box(x, down, half_wide, _THICK)
        case "r":
            return _box(across, down, half_wide, _THICK)
        case "u":
            return _box(across, y, _THICK, half_high)
        case _:
            return _box(across, down, _THICK, half_high)


def _middle() -> float:
    return HEIGHT / 2 - _THICK / 2


def _box(x: float, y: float, wide: float, high: float) -> str:
    # Both edges are rounded, not the distance between them: otherwise thin gaps show between two cells.
    return f"M{number(x)} {number(y)}H{number(x + wide)}V{number(y + high)}H{number(x)}z"


def number(value: float) -> str:
    """Format a coordinate, to a hundredth.

    >>> number(8.430001), number(17.0)
    ('8.43', '17')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")


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
