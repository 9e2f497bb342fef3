"""The overview: every panel in short, one of them chosen to be opened."""

from __future__ import annotations

from dba_console.frames.model import Frame
from dba_console.panels.overview import overview
from dba_console.panels.registry import PANELS
from dba_console.panels.text_elements import Line, Span, line, line_width
from dba_console.tui.keys import ScreenName
from dba_console.tui.screen_view import Scene

_BORDERS = "│┬┼├┤"
"""Signs at which a panel ends to the side: what is below them belongs to two."""


class OverviewView:
    """The first screen. `chosen` is the panel that enter opens, None until tab chooses one."""

    where: ScreenName = "overview"
    hints: tuple[str, ...] = ("panel", "panel_f", "runbooks", "open", "space", "time", "mark", "help", "quit")

    def __init__(self) -> None:
        self.chosen: str | None = None
        self._order: list[str] = []
        self._lines: list[Line] = []
        self._frame: Frame | None = None
        self._size = (0, 0)

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        if scene.frame is None:
            self._order, self._lines, self._frame = [], [], None
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        if scene.frame is not self._frame or (width, height) != self._size:
            self._frame, self._size = scene.frame, (width, height)
            self._lines = overview(scene.frame, scene.history, width, height, ascii=scene.ascii)
            self._order = _panels_in(self._lines)
        return [_highlighted(spans, self.chosen) for spans in self._lines]

    def do_focus_next(self) -> None:
        self._focus(1)

    def do_focus_previous(self) -> None:
        self._focus(-1)

    def _focus(self, direction: int) -> None:
        order = self._order or list(PANELS)
        if self.chosen in order:
            self.chosen = order[(order.index(self.chosen) + direction) % len(order)]
        else:
            self.chosen = order[0 if direction > 0 else -1]

    def back(self) -> bool:
        self.chosen = None
        return True

    def sort_key(self, key: str) -> bool:
        return False

    def click(self, row: int, column: int) -> str | None:
        """The panel under the pointer: of those with a title on that line or above it, the nearest in its column."""
        for spans in reversed(self._lines[: row + 1]):
            if (name := _panel_at(spans, column)) is not None:
                return name
        return None

    def wheel(self, rows: int) -> None:
        self._focus(1 if rows > 0 else -1)


def _panels_in(lines: list[Line]) -> list[str]:
    """Names of the panels whose titles stand in the lines, in reading order."""
    return [name for spans in lines for span in spans if (name := _panel_of(span)) is not None]


def _panel_at(spans: Line, column: int) -> str | None:
    """The panel whose title stands between the same two borders of that line as the column does, None where none."""
    cells, start = "", 0
    for span in spans:
        cells += "".join(sign * line_width((Span(sign),)) for sign in span.text)
    borders = [-1, *(place for place, sign in enumerate(cells) if sign in _BORDERS), len(cells)]
    left = max((border for border in borders if border <= column), default=-1)
    right = min((border for border in borders if border > column), default=len(cells))
    for span in spans:
        name, start = _panel_of(span), start + line_width((span,))
        if name is not None and left < start <= right:
            return name
    return None


def _panel_of(span: Span) -> str | None:
    if span.style != "title":
        return None
    word = span.text.strip()
    return next((name for name, kind in PANELS.items() if word == kind.title), None)


def _highlighted(spans: Line, chosen: str | None) -> Line:
    if chosen is None:
        return spans
    return tuple(Span(span.text, "selected") if _panel_of(span) == chosen else span for span in spans)
