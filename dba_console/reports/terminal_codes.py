"""Lines of the screen as terminal escape sequences (ECMA-48): whole screens, or what changed between two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from dba_console.watch.drawing.terminal_styles import COLOURED
from dba_console.watch.drawing.text_elements import Line, Span, Style, text_width

_CODES = {
    "bold": "1", "dim": "2", "reverse": "7", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
    "cyan": "36",
}  # fmt: skip
"""Select Graphic Rendition (ECMA-48, 8.3.117) of the words of a style."""
_SGR = {
    style: f"\x1b[{';'.join(_CODES[word] for word in words.split())}m" if words else ""
    for style, words in COLOURED.items()
}
_NEAR = 8
"""Cells between two changes of a row that are sent with them: moving the cursor is longer."""
_PLAIN, _REST_OF_LINE = "\x1b[0m", "\x1b[K"


class ScreenPainter:
    """Turns each screen into what changes the one before into it; all screens have the same number of rows."""

    def __init__(self) -> None:
        self._lines: Sequence[Line] = ()
        self._cells: list[_Cells | None] = []

    def paint(self, lines: Sequence[Line]) -> str:
        """Return the codes; the first time cursor off, everything cleared and all rows."""
        if not self._lines:
            self._lines, self._cells = [()] * len(lines), [None] * len(lines)
            return "\x1b[?25l\x1b[0m\x1b[2J" + self.paint(lines)
        changed = "".join(
            self._row(row, new) for row, (old, new) in enumerate(zip(self._lines, lines, strict=True)) if old != new
        )
        self._lines = lines
        return changed

    def end(self) -> str:
        """Return what leaves the last screen as it is, with the cursor in its last row."""
        return f"\x1b[{len(self._lines)};1H\x1b[0m\x1b[?25h"

    def _row(self, row: int, spans: Line) -> str:
        old, new = self._cells[row], _cells_of(spans)
        self._cells[row] = new
        if old is None or new is None or len(old.text) != len(new.text):
            return f"\x1b[{row + 1};1H{paint(spans).rstrip(' ')}{_REST_OF_LINE}"
        return "".join(
            f"\x1b[{row + 1};{start + 1}H{paint(new.spans(start, end))}" for start, end in _changed_cells(old, new)
        )


class _Cells(NamedTuple):
    """A row whose characters take one cell each."""

    text: str
    styles: list[Style]

    def spans(self, start: int, end: int) -> Iterator[Span]:
        for style, same in groupby(range(start, end), key=self.styles.__getitem__):
            yield Span("".join(self.text[column] for column in same), style)


def _cells_of(spans: Line) -> _Cells | None:
    """Return the cells of a row; None if a character takes two cells or none."""
    text = "".join(span.text for span in spans)
    if not (text.isascii() or all(map(_takes_one_cell, set(text)))):
        return None
    return _Cells(text, [style for part, style in spans for _ in part])


@lru_cache(maxsize=4096)
def _takes_one_cell(sign: str) -> bool:
    return text_width(sign) == 1


def _changed_cells(old: _Cells, new: _Cells) -> list[tuple[int, int]]:
    """Return the first cell and the one after the last of each piece that differs."""
    pieces: list[tuple[int, int]] = []
    for column, (before, after, old_style, new_style) in enumerate(
        zip(old.text, new.text, old.styles, new.styles, strict=True)
    ):
        if before == after and old_style == new_style:
            continue
        if pieces and column - pieces[-1][1] <= _NEAR:
            pieces[-1] = (pieces[-1][0], column + 1)
        else:
            pieces.append((column, column + 1))
    return pieces


def paint(spans: Iterable[Span]) -> str:
    """Return text with the codes of its styles.

    >>> paint((Span("a", "crit"), Span("b")))
    '\\x1b[1;31ma\\x1b[0mb'
    """
    return "".join(f"{_SGR[style]}{text}{_PLAIN}" if _SGR[style] else text for text, style in spans)
