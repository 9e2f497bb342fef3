"""A page of lines longer than the screen: what all views have that are read and not worked in."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.panels.text_elements import Line, Span, line


class ScrolledPage:
    """Scrolled by the line and by the screen. A view calls `scrolled` with all its lines and shows what it returns.

    `home` is left to each of them: where the moment shown matters it leads to the start of the recording.
    """

    def __init__(self) -> None:
        self._top = 0
        self._max_top = 0
        self._page_height = 1

    def scrolled(self, lines: Sequence[Line], height: int) -> list[Line]:
        """The lines that fit, from the one scrolled to; the last one says how many are left below."""
        self._page_height, self._max_top = max(1, height - 1), max(0, len(lines) - height)
        self._top = min(self._top, self._max_top)
        shown = list(lines[self._top : self._top + max(0, height)])
        left = len(lines) - self._top - height
        if left > 0 and height > 1:
            shown[-1] = line(Span(f" … ↓ {left + 1} more lines", "dim"))
        return shown

    # Keys

    def do_row_up(self) -> None:
        self.wheel(-1)

    def do_row_down(self) -> None:
        self.wheel(1)

    def do_page_up(self) -> None:
        self.wheel(-self._page_height)

    def do_page_down(self) -> None:
        self.wheel(self._page_height)

    def wheel(self, rows: int) -> None:
        self._top = max(0, min(self._top + rows, self._max_top))

    def back(self) -> bool:
        return False

    def sort_key(self, key: str) -> bool:
        return False

    def click(self, row: int, column: int) -> str | None:
        return None
