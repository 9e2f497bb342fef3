"""The view that compares two times: the one kept by a key, and the one on the screen, which time travel changes."""

from __future__ import annotations

from collections.abc import Callable

from dba_console.tui.keys import ScreenName
from dba_console.tui.live_state import Moment
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.watch.drawing.overview import title_rule
from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line, wrap
from dba_console.watch.frames.model import Frame

LIMIT = 200
"""Changes listed."""
_TEXT_COLUMN = 15
"""Where the text of a change begins, after its panel."""


def _hanging(text: str, cells: int) -> list[str]:
    """Wrap a line of the comparison; its further lines begin below its text.

    >>> _hanging("  disks        /dev/shm: used fell from 159 MB", 40)
    ['  disks        /dev/shm: used fell from', '               159 MB']
    """
    indent = _TEXT_COLUMN if text[_TEXT_COLUMN - 1 : _TEXT_COLUMN] == " " and text.startswith("  ") else 0
    first, *rest = wrap(text[indent:], cells - indent) or [""]
    return [text[:indent] + first, *(" " * indent + piece for piece in rest)]


class ComparisonView(ScrolledPage):
    """What changed from the earlier of the two moments to the later, the largest change first."""

    where: ScreenName = "comparison"
    hints: tuple[str, ...] = ("back", "compare", "space", "time", "help", "quit")

    def __init__(self, kept: Moment, shown: Callable[[], Moment | None]) -> None:
        super().__init__()
        self._kept, self._kept_frame = kept, kept.frame()
        self._shown = shown
        self._drawn: tuple[Frame | None, int] = (None, 0)
        self._lines: list[Line] = []

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        moment = self._shown()
        if scene.frame is None or moment is None:
            return [(), line(Span(f" {scene.waiting_text}", "dim"))]
        if self._drawn != (scene.frame, width):
            self._drawn = (scene.frame, width)
            texts = self._texts(scene.frame, moment)
            self._lines = [line(Span(" "), piece) for text in texts for piece in _hanging(text, max(20, width - 2))]
        head = fit_line(title_rule(line(Span("What changed", "title")), width), width)
        return [head, *self.scrolled(self._lines, height - 1)]

    def _texts(self, frame: Frame, moment: Moment) -> list[str]:
        from dba_console.reports.comparison import compare, comparison_lines, server_settings  # loaded when it is used

        pair = [(self._kept_frame, self._kept.picture), (frame, moment.picture)]
        (old, before), (new, after) = sorted(pair, key=lambda one: one[0].at_us)
        return comparison_lines(compare(old, new, (server_settings(before), server_settings(after))), LIMIT)
