"""Boxes on a grid: titles in rules, columns parted by lines, and the joints where they meet.

A box knows its place; which of ┬ ┴ ┼ ├ ┤ stands at a crossing follows from what is drawn around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.panels.cells import Line, Span, fit_line, line_width


@dataclass(frozen=True, slots=True)
class Box:
    """A titled rectangle. Its first row is the rule with the title, the rest are lines, one blank from its left edge.

    `title` None: no rule, lines from the first row on; an empty title is a bare rule.
    """

    x: int
    y: int
    width: int
    height: int
    title: Line | None
    lines: Sequence[Line] = ()

    def is_rule(self, row: int) -> bool:
        return self.title is not None and row == self.y

    def draw(self, row: int) -> Line:
        """The row of the grid that lies in this box, exactly as wide as the box."""
        if self.title is not None and row == self.y:
            return _rule(self.title, self.width)
        index = row - self.y - (0 if self.title is None else 1)
        if index < len(self.lines):
            return (Span(" "), *fit_line(self.lines[index], self.width - 1))
        return (Span(" " * self.width),)


def _rule(title: Line, cells: int) -> Line:
    if not title or cells < 6:
        return (Span("─" * cells, "dim"),)
    kept = title if line_width(title) <= cells - 4 else fit_line(title, cells - 4)
    rest = cells - 3 - line_width(kept)
    return (Span("─ ", "dim"), *kept, Span(" " + "─" * rest, "dim"))


# Which of left, right, up, down a crossing joins.
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


def draw(boxes: Sequence[Box], width: int, height: int) -> list[Line]:
    """The grid as exactly `height` lines of exactly `width` cells.

    Boxes side by side leave one column between them, and a row with any box is filled by its boxes.
    """
    rows: list[list[Box]] = [[] for _ in range(height)]
    for box in sorted(boxes, key=lambda box: box.x):
        for row in range(box.y, min(box.y + box.height, height)):
            rows[row].append(box)
    lines = [{box.x - 1 for box in row if box.x > 0} for row in rows]
    nothing: set[int] = set()
    return [
        _draw_row(row, boxes_here, lines[row - 1] if row else nothing, lines[row + 1 : row + 2], width)
        for row, boxes_here in enumerate(rows)
    ]


def _draw_row(row: int, boxes: Sequence[Box], above: set[int], below: Sequence[set[int]], width: int) -> Line:
    spans: list[Span] = []
    left: Box | None = None
    for box in boxes:
        if box.x > 0:
            column = box.x - 1
            left_rule = left is not None and left.is_rule(row)
            around = (left_rule, box.is_rule(row), column in above, bool(below) and column in below[0])
            spans.append(Span(_JOINTS.get(around, "│"), "dim"))
        spans.extend(box.draw(row))
        left = box
    return tuple(spans) if boxes else (Span(" " * width),)
