"""The interface of a view: lines for its area, and methods for its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dba_console.tui.keys import ScreenName
from dba_console.watch.drawing.text_elements import Line, scrolled_lines
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame


@dataclass(frozen=True, slots=True)
class Scene:
    """What a view draws from: the frame shown (None before the first), and how it is shown."""

    frame: Frame | None
    history: ChartHistory
    waiting_text: str
    """The text in place of panels while there is no frame."""
    ascii: bool = False
    history_around: Callable[[int], ChartHistory | None] = lambda at_us: None
    """Returns the minutes around a time, once they have been read."""
    live: bool = True
    """True if the moment shown is live."""


class ScreenView(Protocol):
    """A body between header and footer. Its keys are methods `do_ACTION`, with the actions of keys.py."""

    @property
    def where(self) -> ScreenName:
        """The screen name that selects its keys."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Actions for its footer, the least important just before the last two."""

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Return the body, at most `height` lines of at most `width` cells."""

    def back(self) -> bool:
        """Close what is open in it. Returns False if nothing is: then the view itself is left."""

    def click(self, row: int, column: int) -> str | None:
        """Handle a click on a cell of the body. Returns the action of keys.py to run, or None; never one that
        changes anything.
        """

    def wheel(self, rows: int) -> None:
        """Scroll by that many rows down (negative: up)."""

    def copied_text(self) -> str:
        """Return the row, query or command to copy; empty if nothing is selected."""


# A page of lines longer than the screen, for views that are only read.


class ScrolledPage:
    """Scrolled by line and by screen. A view calls `scrolled` with all its lines and shows the result.

    `home` is left to the views: on some it goes to the start of the recording.
    """

    def __init__(self) -> None:
        self._top = 0
        self._max_top = 0
        self._page_height = 1

    def scrolled(self, lines: Sequence[Line], height: int) -> list[Line]:
        """Return the lines that fit, from the scroll position; the last one shows how many follow."""
        self._page_height, self._max_top = max(1, height - 1), max(0, len(lines) - height)
        self._top = min(self._top, self._max_top)
        return scrolled_lines(lines, self._top, height)

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

    def click(self, row: int, column: int) -> str | None:
        return None

    def copied_text(self) -> str:
        return ""
