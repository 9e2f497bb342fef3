"""Tables as text: what matters stays, what is spare goes first."""

from __future__ import annotations

from dba_console.watch.drawing.text_elements import (
    Cell,
    Table,
    TableColumn,
    TableRow,
    drop_blank_columns,
    line_text,
    line_width,
    move_spare_columns_last,
    table_lines,
)

COLUMNS = (
    TableColumn("pid", "pid", 8, right=True),
    TableColumn("client", "client", 20, spare=2),
    TableColumn("read", "read", 9, right=True, spare=1),
    TableColumn("query", "query", 60, grow=True),
)
ROWS = [
    TableRow("1", (Cell("8123"), Cell("10.0.0.1"), Cell("9.4 MB/s"), Cell("select " + "x" * 90))),
    TableRow("2", (Cell("7"), Cell("[local]"), Cell("?"), Cell("commit"))),
]


def text(width: int, columns: tuple[TableColumn, ...] = COLUMNS, rows: list[TableRow] | None = None) -> list[str]:
    lines = table_lines(columns, ROWS if rows is None else rows, width)
    assert all(line_width(one) <= width for one in lines)
    return [line_text(one) for one in lines]


def test_numbers_are_aligned_right_and_words_left_under_their_titles() -> None:
    head, first, second = text(120)
    assert head.index("pid") + len("pid") == first.index("8123") + len("8123") == second.index("7") + 1
    assert head.index("query") == second.index("commit")


def test_the_spare_columns_are_dropped_first_without_space() -> None:
    assert text(52)[0].split() == ["pid", "read", "query"]
    assert text(40)[0].split() == ["pid", "query"]


def test_the_growing_column_gets_the_remaining_width() -> None:
    assert text(100)[1].endswith("x…")
    assert text(200)[1].endswith("x" * 90)


def test_space_left_by_the_growing_column_goes_to_cut_text() -> None:
    rows = [TableRow("1", (Cell("1"), Cell("a client with a rather long name"), Cell("?"), Cell("commit")))]
    assert "a client with a rather long name" in text(120, rows=rows)[1]
    assert "name" not in text(40, rows=rows)[1]


def test_an_unknown_value_keeps_its_column_a_blank_one_does_not() -> None:
    rows = [TableRow("1", (Cell("1"), Cell(""), Cell("?"), Cell("q")))]
    columns, kept = drop_blank_columns(COLUMNS, rows)
    assert [column.id for column in columns] == ["pid", "read", "query"]
    assert len(kept[0].cells) == 3


def test_a_table_without_rows_keeps_its_columns() -> None:
    assert text(120, rows=[])[0].split() == ["pid", "client", "read", "query"]


def test_a_narrow_screen_keeps_the_query_visible_and_the_rest_scrolls() -> None:
    table = move_spare_columns_last(Table("sessions", COLUMNS, tuple(ROWS), sort="read"), 60)
    assert [column.id for column in table.columns] == ["pid", "read", "query", "client"]
    assert [cell.text for cell in table.rows[1].cells] == ["7", "?", "commit", "[local]"]
    assert (table.sort, table.rows[0].key) == ("read", "1")


def test_a_table_that_fits_is_unchanged() -> None:
    table = Table("sessions", COLUMNS, tuple(ROWS))
    assert move_spare_columns_last(table, 200) is table
