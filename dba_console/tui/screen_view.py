"""What every view of the screen has: lines for its place, and methods for its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.model import Frame
from dba_console.panels.text_elements import Line
from dba_console.tui.keys import ScreenName


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
