"""Help: all keys of the screen it was asked on, from the registry."""

from __future__ import annotations

from dba_console.panels.text_elements import Line, Span, fit, line
from dba_console.panels.text_elements import width as cells_of
from dba_console.panels.wrapping import wrap
from dba_console.tui.keys import Key, ScreenName, groups
from dba_console.tui.panel_keys import panel_titles
from dba_console.tui.screen_view import Scene
from dba_console.tui.scrolled_page import ScrolledPage

_KEY_CELLS = 11
_TWO_COLUMNS = 110
"""Cells from which on the groups stand beside each other."""


class HelpView(ScrolledPage):
    """The keys of `of`, scrolled where they do not fit."""

    hints: tuple[str, ...] = ("back", "quit")

    def __init__(self, screen_name: ScreenName) -> None:
        super().__init__()
        self.where: ScreenName = "detail"
        self._screen_name = screen_name

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        lines = (
            _side_by_side_lines(self._screen_name, width)
            if width >= _TWO_COLUMNS
            else _stacked_lines(_ordered_groups(self._screen_name), width)
        )
        return self.scrolled(lines, height)

    def do_top(self) -> None:
        self._top = 0


def _ordered_groups(where: ScreenName) -> list[tuple[str, list[Key]]]:
    """The groups that have keys here; those with keys of this very screen first."""
    every = [group for group in groups(where) if group[1]]
    return sorted(every, key=lambda group: all(key.where == "everywhere" for key in group[1]))


def _side_by_side_lines(where: ScreenName, width: int) -> list[Line]:
    every = _ordered_groups(where)
    half = width // 2
    left, right = _stacked_lines(every[:2], half - 1), _stacked_lines(every[2:], half - 1)
    rows = max(len(left), len(right))
    left += [()] * (rows - len(left))
    right += [()] * (rows - len(right))
    return [(*one, Span(" " * (half - sum(cells_of(span.text) for span in one))), *two)
            for one, two in zip(left, right, strict=True)]  # fmt: skip


def _stacked_lines(chosen: list[tuple[str, list[Key]]], width: int) -> list[Line]:
    titles = panel_titles()
    lines: list[Line] = []
    for title, keys in chosen:
        lines.append(line(Span(f" {title}", "title")))
        for key in keys:
            lines += _key_lines(key, key.help or titles.get(key.shown, key.title), width)
        lines.append(())
    return lines[:-1]


def _key_lines(key: Key, meaning: str, width: int) -> list[Line]:
    pieces = wrap(meaning, max(10, width - _KEY_CELLS - 2))
    first = line(Span(f"  {fit(key.shown, _KEY_CELLS - 1)}", "key"), pieces[0])
    return [first, *(line(" " * (_KEY_CELLS + 1) + piece) for piece in pieces[1:])]
