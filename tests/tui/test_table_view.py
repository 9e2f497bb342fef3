"""A table under the operator's hands: the selection stays on its row by identity, whatever happens to the order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.tui.table_view import Grid, grid_lines, max_columns_scrolled, title_line
from dba_console.watch.drawing.text_elements import Cell, Table, TableColumn, TableRow, line_text

COLUMNS = (
    TableColumn("pid", "pid", 8, right=True),
    TableColumn("age", "age", 6, right=True, descending=True),
    TableColumn("query", "query", 20, grow=True),
)


def table(*rows: tuple[int, float | None, str]) -> Table:
    return Table(
        "sessions",
        COLUMNS,
        tuple(
            TableRow(
                f"pid:{pid}", (Cell(str(pid), pid), Cell("?" if age is None else str(age), age), Cell(query, query))
            )
            for pid, age, query in rows
        ),
        sort="age",
        title="Sessions",
        empty="no session",
    )


THREE = table((1, 5.0, "select one"), (2, 9.0, "update two"), (3, None, "vacuum three"))


@pytest.fixture
def grid() -> Grid:
    made = Grid(THREE)
    made.height = 10
    return made


def keys(grid: Grid) -> list[str]:
    return [row.key for row in grid.rows]


def test_rows_are_in_the_order_of_the_table_at_first(grid: Grid) -> None:
    assert keys(grid) == ["pid:2", "pid:1", "pid:3"]


def test_unknown_values_are_last_in_either_order(grid: Grid) -> None:
    grid.invert()
    assert keys(grid) == ["pid:1", "pid:2", "pid:3"]


def test_nothing_is_selected_until_the_operator_does(grid: Grid) -> None:
    assert grid.selected is None
    grid.move(1)
    assert grid.selected == "pid:2"


def test_the_selection_follows_its_row_through_another_sort_order(grid: Grid) -> None:
    grid.move(1)
    grid.sort_by("pid")
    assert (grid.selected, grid.position) == ("pid:2", 1)


def test_the_selection_follows_its_row_through_an_update(grid: Grid) -> None:
    grid.move(1)
    grid.update(table((1, 50.0, "select one"), (2, 10.0, "update two"), (4, 99.0, "new")))
    assert grid.selected == "pid:2"
    assert grid.rows[grid.position or 0].key == "pid:2"


def test_a_selected_row_that_is_gone_is_reported_and_no_other_takes_its_place(grid: Grid) -> None:
    grid.move(1)
    grid.update(table((1, 5.0, "select one"), (3, None, "vacuum three")))
    assert grid.selected == "pid:2" and grid.gone and grid.position is None
    assert grid.last_row is not None and grid.last_row.cells[2].text == "update two"
    assert "the selected row is gone" in line_text(title_line(grid, (), 120))


def test_a_row_that_returns_is_selected_again(grid: Grid) -> None:
    grid.move(1)
    grid.update(table((1, 5.0, "select one")))
    grid.update(THREE)
    assert not grid.gone and grid.position == 0


def test_moving_from_a_row_that_is_gone_selects_its_former_neighbour(grid: Grid) -> None:
    grid.move(1)
    grid.update(table((1, 5.0, "select one"), (3, None, "vacuum three")))
    grid.move(1)
    assert grid.selected == "pid:1"


def test_a_filter_searches_every_column_in_any_case(grid: Grid) -> None:
    grid.set_filter("UPDATE")
    assert keys(grid) == ["pid:2"]
    grid.set_filter("3")
    assert keys(grid) == ["pid:3"]
    grid.set_filter("")
    assert len(keys(grid)) == 3


def test_a_selected_row_hidden_by_the_filter_is_reported_as_hidden(grid: Grid) -> None:
    grid.move(1)
    grid.set_filter("vacuum")
    assert "hidden by the filter" in line_text(title_line(grid, (), 120))


def test_a_filter_without_matches_says_so(grid: Grid) -> None:
    grid.set_filter("nowhere")
    assert "no row contains “nowhere”" in "\n".join(line_text(one) for one in grid_lines(grid, 60, 5))


def test_an_empty_table_shows_the_reason() -> None:
    assert "no session" in line_text(grid_lines(Grid(table()), 60, 5)[1])


def test_a_heading_sorts_by_its_column_and_again_reverses_the_order(grid: Grid) -> None:
    heading = line_text(grid_lines(grid, 60, 5)[0])
    grid.sort_at(heading.index("pid"))
    assert keys(grid) == ["pid:1", "pid:2", "pid:3"]
    grid.sort_at(heading.index("pid"))
    assert keys(grid) == ["pid:3", "pid:2", "pid:1"]


def test_a_prefix_of_a_column_name_sorts_by_it(grid: Grid) -> None:
    for typed in ("p", "pi", "pid", "", "nowhere"):
        grid.sort_by_name(typed)
        assert keys(grid) == ["pid:1", "pid:2", "pid:3"]


def test_cycling_goes_through_every_column_and_back(grid: Grid) -> None:
    seen = []
    for _ in COLUMNS:
        grid.sort_by_adjacent(1)
        seen.append(grid.sort)
    assert seen == ["query", "pid", "age"]


def test_a_tree_can_return_to_its_original_order() -> None:
    grid = Grid(Table("locks", COLUMNS, THREE.rows, sort=None))
    for _ in range(len(COLUMNS) + 1):
        grid.sort_by_adjacent(1)
    assert grid.sort is None
    assert keys(grid) == ["pid:1", "pid:2", "pid:3"]


def test_the_selected_row_is_scrolled_into_view() -> None:
    grid = Grid(table(*((pid, float(pid), "x") for pid in range(100))))
    lines = grid_lines(grid, 40, 11)
    assert len(lines) == 11
    for _ in range(40):
        grid.move(1)
    lines = grid_lines(grid, 40, 11)
    selected = [one for one in lines if any(span.style == "selected" for span in one)]
    assert len(selected) == 1 and line_text(selected[0]).split()[0] == "60"


def test_scrolling_sideways_shows_the_columns_to_the_right_and_stops_at_the_end() -> None:
    grid = Grid(table((1, 1.0, "a query of some length")))
    assert "query" not in line_text(grid_lines(grid, 12, 3)[0])
    grid.scroll_sideways(500, max_columns_scrolled(grid, 12))
    heads = line_text(grid_lines(grid, 12, 3)[0])
    assert heads.startswith(" pid") and "age" not in heads
    assert "que" in heads and "1 column to the left" in line_text(title_line(grid, (), 80))
    grid.scroll_sideways(-500, 99)
    assert grid.columns_scrolled == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.floats(allow_nan=False)), st.text(max_size=9)),
             unique_by=lambda row: row[0], max_size=30),
    st.lists(st.sampled_from(["up", "down", "invert", "cycle", "top", "filter", "clear", "wheel"]), max_size=12),
    st.integers(1, 90),
    st.integers(2, 30),
)  # fmt: skip
def test_any_keys_on_any_table_leave_a_screen_of_the_right_size(
    rows: list[tuple[int, float | None, str]], pressed: list[str], cells: int, height: int
) -> None:
    grid = Grid(table(*rows))
    do: dict[str, Callable[[], object]] = {
        "up": lambda: grid.move(-1),
        "down": lambda: grid.move(1),
        "invert": grid.invert,
        "cycle": lambda: grid.sort_by_adjacent(1),
        "top": grid.to_top,
        "filter": lambda: grid.set_filter("1"),
        "clear": lambda: grid.set_filter(""),
        "wheel": lambda: grid.scroll(3),
    }
    for name in pressed:
        chosen = grid.selected
        do[name]()
        if name in ("invert", "cycle", "filter", "clear"):
            assert grid.selected == chosen
        lines = grid_lines(grid, cells, height)
        assert len(lines) == height
        assert 0 <= grid.top <= max(0, len(grid.rows) - 1)


def test_a_column_of_names_is_no_wider_than_its_names() -> None:
    grid = Grid(Table("t", (TableColumn("name", "name", 40, grow=True), TableColumn("count", "count", 6, right=True)),
                      (TableRow("a", (Cell("psql"), Cell("12", 12))),)))  # fmt: skip
    assert line_text(grid_lines(grid, 160, 2)[1]) == "psql      12"


def test_a_column_that_does_not_fit_completely_is_not_shown() -> None:
    columns = tuple(TableColumn(name, name, 10, right=True) for name in ("aaaaaaaaa", "bbbbbbbbb", "ccccccccc"))
    grid = Grid(Table("t", columns, (TableRow("a", (Cell("1"), Cell("2"), Cell("3"))),)))
    assert line_text(grid_lines(grid, 28, 2)[0]).split() == ["aaaaaaaaa", "bbbbbbbbb"]
    assert "more columns" in line_text(title_line(grid, (), 28))


def test_a_query_is_not_narrowed_by_columns_beyond_the_edge() -> None:
    columns = (
        TableColumn("pid", "pid", 8),
        TableColumn("query", "query", 60, grow=True),
        TableColumn("rss", "rss", 60),
    )
    grid = Grid(Table("t", columns, (TableRow("a", (Cell("1"), Cell("q" * 200), Cell("r" * 60))),)))
    assert line_text(grid_lines(grid, 90, 2)[1]).count("q") > 80


def test_a_column_keeps_its_width_if_another_screen_width_moves_it() -> None:
    grid = Grid(table((1, 5.0, "select " + "x" * 60)))
    grid.update(Table("sessions", (COLUMNS[2], COLUMNS[0], COLUMNS[1]), (), sort="age"))
    needed = dict(zip((column.id for column in grid.table.columns), grid.needed, strict=True))
    assert needed["query"] == 67
    assert needed["pid"] <= 8 and needed["age"] <= 6


def test_space_left_by_the_growing_column_goes_to_cut_text() -> None:
    columns = (
        TableColumn("phase", "phase", 8),
        TableColumn("object", "works on", 30, grow=True),
        TableColumn("n", "n", 5, right=True),
    )
    row = TableRow("a", (Cell("scanning table"), Cell("orders"), Cell("1")))
    grid = Grid(Table("t", columns, (row,)))
    assert "scanning table" in line_text(grid_lines(grid, 60, 2)[1])
    assert "scanning t" not in line_text(grid_lines(grid, 22, 2)[1])
