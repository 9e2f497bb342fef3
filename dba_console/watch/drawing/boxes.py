"""Boxes on a grid: titles in rules, columns separated by lines, and the joints where they meet.

A box has a position; the joint (┬ ┴ ┼ ├ ┤) at a crossing follows from what is drawn around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.watch.drawing.text_elements import Line, Span, fit_line, line_width


@dataclass(frozen=True, slots=True)
class Box:
    """A titled rectangle. Its first row is the rule with the title, the rest are lines, one blank from its left edge.

    `title` None: no rule, lines from the first row on; an empty title gives a plain rule.
    """

    x: int
    y: int
    width: int
    height: int
    title: Line | None
    lines: Sequence[Line] = ()

    def is_rule(self, row: int) -> bool:
        return self.title is not None and row == self.y

    def draw(self, row: int, above: set[int], below: set[int]) -> Line:
        """Return a row of the grid within this box, exactly as wide as the box.

        `above` and `below` are the columns of the lines in the neighbouring rows.
        """
        if self.title is not None and row == self.y:
            return self._rule(self.title, above, below)
        index = row - self.y - (0 if self.title is None else 1)
        if index < len(self.lines):
            return (Span(" "), *fit_line(self.lines[index], self.width - 1))
        return (Span(" " * self.width),)

    def _rule(self, title: Line, above: set[int], below: set[int]) -> Line:
        """Return the title in its rule, joined to the lines that end on it. A joint never cuts the title."""
        start: list[Span] = []
        taken = 0
        if title and self.width >= 6:
            kept = title if line_width(title) <= self.width - 4 else fit_line(title, self.width - 4)
            start = [Span("─ ", "dim"), *kept, Span(" ")]
            taken = line_width(kept) + 3
        columns = range(self.x + taken, self.x + self.width)
        signs = [_JOINTS[True, True, column in above, column in below] for column in columns]
        return (*start, Span("".join(signs), "dim"))


# Which of left, right, up and down a crossing joins.
_JOINTS = {
    (True, True, False, False): "─",
    (True, True, False, True): "┬",
    (True, True, True, False): "┴",
    (True, True, True, True): "┼",
    (True, False, True, True): "┤",
    (False, True, True, True): "├",
    (True, False, False, True): "┐",
    (True, False, True, False): "┘",
    (False, True, False, True): "┌",
    (False, True, True, False): "└",
}


def draw_boxes(boxes: Sequence[Box], width: int, height: int) -> list[Line]:
    """Return the grid as exactly `height` lines of exactly `width` cells.

    Boxes side by side leave one column between them, and a row with any box is filled by its boxes.
    """
    rows: list[list[Box]] = [[] for _ in range(height)]
    for box in sorted(boxes, key=lambda box: box.x):
        for row in range(box.y, min(box.y + box.height, height)):
            rows[row].append(box)
    lines: list[set[int]] = [set(), *({box.x - 1 for box in row if box.x > 0} for row in rows), set()]
    return [_draw_row(row, rows[row], lines[row], lines[row + 2], width) for row in range(height)]


def _draw_row(row: int, boxes: Sequence[Box], above: set[int], below: set[int], width: int) -> Line:
    spans: list[Span] = []
    left: Box | None = None
    for box in boxes:
        if box.x > 0:
            column = box.x - 1
            left_rule = left is not None and left.is_rule(row)
            around = (left_rule, box.is_rule(row), column in above, column in below)
            spans.append(Span(_JOINTS.get(around, "│"), "dim"))
        spans.extend(box.draw(row, above, below))
        left = box
    return tuple(spans) if boxes else (Span(" " * width),)
