"""The one widget: lines on the terminal. Only lines that changed are painted again, which is what a slow link feels."""

from __future__ import annotations

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dba_console.panels.text_elements import Line
from dba_console.tui.paint import paint
from dba_console.tui.styles import StyleTable


class Canvas(Widget, can_focus=True):
    """Shows lines; passes keys, presses and the wheel on as events bubble."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"

    class Resized(Message):
        """The place for lines has another size: all of them are wanted again."""

    def __init__(self, table: StyleTable) -> None:
        super().__init__()
        self._table = table
        self._lines: list[Line] = []
        self.painted = 0
        """Lines painted since the start: the tests' measure of damage."""

    def show(self, lines: list[Line]) -> None:
        """Take the lines of a new picture; those that differ from the ones shown are painted."""
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.refresh()
            return
        width = self.size.width
        changed = [Region(0, y, width, 1) for y, spans in enumerate(lines) if spans != before[y]]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        self.painted += 1
        spans = self._lines[y] if y < len(self._lines) else ()
        return paint(spans, self.size.width, self._table)

    def on_resize(self, event: events.Resize) -> None:
        self._lines = []
        self.post_message(self.Resized())
