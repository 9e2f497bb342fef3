"""What every view of the screen has: lines for its place, and methods for its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dba_console.tui.keys import ScreenName
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.panels.text_elements import Line, Span, line


@dataclass(frozen=True, slots=True)
class Scene:
    """What a view draws from: the frame of the moment shown (None before the first), and how."""

    frame: Frame | None
    history: ChartHistory
    waiting_text: str
    """The sentence in place of panels while there is no frame."""
    ascii: bool = False
    history_around: Callable[[int], ChartHistory | None] = lambda at_us: None
    """The minutes around a moment, once they are at hand."""
    live: bool = True
    """The moment shown is the present."""


class ScreenView(Protocol):
    """A body between header and footer. Its keys are methods `do_ACTION` of the registry's actions."""

    @property
    def where(self) -> ScreenName:
        """Which keys of the registry mean something on it."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Actions its footer shows, the least important just before the last two."""

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        """The body, at most `height` lines of at most `width` cells."""

    def sort_key(self, key: str) -> bool:
        """Take a key the registry does not know: a column's own. False where it means nothing."""

    def back(self) -> bool:
        """Close what is open in it. False where nothing is: then the view itself is left."""

    def click(self, row: int, column: int) -> str | None:
        """A press of the mouse on a cell of the body. The panel it opens, None where it opens none."""

    def wheel(self, rows: int) -> None:
        """The mouse wheel, so many rows down (negative: up)."""


# A page of lines longer than the screen: what all views have that are read and not worked in.


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
