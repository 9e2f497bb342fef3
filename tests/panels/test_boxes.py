"""Boxes meet in the right signs and fill the screen."""

from __future__ import annotations

from dba_console.watch.drawing.boxes import Box, draw_boxes
from dba_console.watch.drawing.overview import FrameWithHistory, LayoutRow, distribute_rows, stack_rows
from dba_console.watch.drawing.text_elements import Span, line_text, line_width
from tests.build import busy_frame, busy_history


def title(text: str) -> tuple[Span, ...]:
    return (Span(text),)


def test_borders_of_two_columns_over_one_are_joined_where_they_meet() -> None:
    boxes = [
        Box(0, 0, 9, 2, title("A")),
        Box(10, 0, 10, 2, title("B")),
        Box(0, 2, 9, 2, title("C")),
        Box(10, 2, 10, 2, title("D")),
        Box(0, 4, 20, 1, title("E")),
    ]
    assert [line_text(one) for one in draw_boxes(boxes, 20, 5)] == [
        "─ A ─────┬─ B ──────",
        "         │",
        "─ C ─────┼─ D ──────",
        "         │",
        "─ E ─────┴──────────",
    ]


def test_a_border_that_ends_at_a_column_joins_it_from_its_side() -> None:
    boxes = [Box(0, 0, 9, 2, title("A")), Box(0, 2, 9, 2, title("C")), Box(10, 0, 10, 4, title("B"))]
    drawn = [line_text(one) for one in draw_boxes(boxes, 20, 4)]
    assert drawn[2].startswith("─ C ─────┤")


def test_a_title_too_long_for_its_box_is_cut_and_the_border_keeps_its_width() -> None:
    (line,) = draw_boxes([Box(0, 0, 12, 1, title("Replication & WAL"))], 12, 1)
    assert line_width(line) == 12
    assert "…" in line_text(line)


def test_every_layout_row_gets_its_minimum_before_any_gets_more() -> None:
    bands = (LayoutRow(("io",), 2, 4, 9, 0), LayoutRow(("locks",), 1, 3, 9, 1))
    assert distribute_rows(bands, [9, 9], 5) == [2, 1]


def test_a_layout_row_without_space_for_its_minimum_is_left_out() -> None:
    bands = (LayoutRow(("io",), 2, 4, 9, 0), LayoutRow(("charts",), 6, 9, 9, 1), LayoutRow(("locks",), 1, 3, 9, 2))
    assert distribute_rows(bands, [2, 9, 1], 6) == [2, None, 1]


def test_more_important_rows_get_a_good_height_before_the_rest_grows() -> None:
    bands = (LayoutRow(("io",), 1, 4, 9, 0), LayoutRow(("locks",), 1, 3, 9, 1))
    assert distribute_rows(bands, [9, 9], 8) == [4, 2]


def test_stacked_layout_rows_fill_the_height_exactly() -> None:
    bands = (LayoutRow(("connections", "io"), 3, 3, 6, 0), LayoutRow(("locks",), 1, 2, 8, 1))
    boxes = stack_rows(FrameWithHistory(busy_frame(), busy_history()), bands, 0, 0, 80, 30)
    assert max(box.y + box.height for box in boxes) == 30
