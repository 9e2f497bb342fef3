"""A panel in full: its tables share the screen, its selected row is shown in full, it closes from the inside out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.tui.panel_detail import DetailView
from dba_console.tui.screen_view import Scene
from dba_console.tui.table_view import MIN_CURRENT, divide_height
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text, line_width
from tests import build

SCENE = Scene(build.busy_frame(), build.busy_history(), "")


def shown(view: DetailView, width: int = 80, height: int = 22) -> str:
    return "\n".join(line_text(spans) for spans in view.lines(SCENE, width, height))


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5), st.data(), st.integers(3, 60))
def test_tables_share_exactly_the_available_rows_and_the_active_one_is_always_shown(
    rows: list[int], data: st.DataObject, height: int
) -> None:
    current = data.draw(st.integers(0, len(rows) - 1))
    given_lines = divide_height(rows, current, height)
    assert sum(given_lines) == height
    assert given_lines[current] >= min(height, 3)
    assert given_lines[current] >= min(height, MIN_CURRENT, 2 + max(1, rows[current]))


def test_a_short_table_leaves_its_space_to_the_next_ones() -> None:
    assert divide_height([0, 4, 0, 8], 0, 15) == [3, 5, 3, 4]


@given(st.sampled_from(sorted(PANELS)), st.integers(40, 200), st.integers(8, 60), st.booleans())
def test_a_panel_fits_its_area_at_any_size(name: str, width: int, height: int, opened: bool) -> None:
    view = DetailView(name)
    view.lines(SCENE, width, height)
    if opened:
        view.do_row()
    lines = view.lines(SCENE, width, height)
    assert len(lines) <= height
    assert all(line_width(spans) <= width for spans in lines)


def test_both_tables_of_a_panel_are_shown_if_there_is_space() -> None:
    text = shown(DetailView("replication"), 120, 40)
    assert "WAL receivers" in text and "old_sub" in text


def test_tab_switches_to_the_next_table_and_its_keys_act_there() -> None:
    view = DetailView("replication")
    shown(view)
    view.do_table_next()
    view.do_row_down()
    assert view.grid.table.title == "Slots" and view.grid.selected is not None
    assert "table_next" in view.hints and "table_next" not in DetailView("sessions").hints


def test_a_click_on_a_row_of_the_other_table_selects_it() -> None:
    view = DetailView("replication")
    rows = shown(view, 120, 40).splitlines()
    place = next(number for number, text in enumerate(rows) if "old_sub" in text)
    view.click(place, 3)
    assert view.grid.last_row is not None
    assert view.grid.last_row.cells[0].text == "old_sub"


def test_the_whole_query_of_the_selected_session_is_shown_wrapped() -> None:
    view = DetailView("sessions")
    shown(view)
    view.grid.set_filter("8123")
    view.do_row()
    assert "alter table orders add column note text" in shown(view)


def test_escape_closes_the_row_with_its_selection_then_the_filter_then_the_panel() -> None:
    view = DetailView("sessions")
    shown(view)
    view.grid.set_filter("app")
    view.do_row()
    steps = [(view.row_open, bool(view.grid.selected), bool(view.grid.filter))]
    while view.back():
        steps.append((view.row_open, bool(view.grid.selected), bool(view.grid.filter)))
    assert steps == [(True, True, True), (False, False, True), (False, False, False)]


def test_keys_on_the_same_frame_do_not_lay_the_tables_out_again() -> None:
    view = DetailView("sessions")
    shown(view)
    table = view.grid.table
    view.do_row_down()
    shown(view)
    assert view.grid.table is table


def test_the_title_shows_how_much_is_visible_from_the_first_frame_on() -> None:
    assert "1-17 of 205" in shown(DetailView("sessions"))


@pytest.mark.parametrize("width", [80, 120, 160])
def test_queries_can_be_read_in_the_sessions_table_at_every_width(width: int) -> None:
    assert "alter ta" in shown(DetailView("sessions"), width)
