"""Rows become records by the names of their columns: each value as its type says, what is missing by default."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from dba_console.watch.part import Query, ServerPart
from dba_console.watch.probes.postgres.binary_results import LSN, TIMESTAMPTZ, ResultRows
from dba_console.watch.probes.postgres.row_decoder import PartDecoder, decode_rows

INT, TEXT = 23, 25


class Line(Struct, array_like=True, frozen=True):
    name: str | None
    pages: int
    seen_at: int | None = None
    lsn: int | None = None


class Document(Struct, array_like=True, frozen=True):
    pages: int
    reset: int | None = None
    lines: list[Line] = []


PART = ServerPart(
    "pg.document",
    Document,
    every_s=1,
    meaning="a document",
    queries=(Query("main"), Query("more", missing="more"), Query("lines", rows="lines", missing="lines")),
)


def result(columns: dict[str, int], *rows: tuple[Any, ...]) -> ResultRows:
    return ResultRows(rows, tuple(columns.items()))


def test_the_order_of_the_columns_does_not_matter_and_a_missing_one_has_its_default() -> None:
    rows = result({"pages": INT, "name": TEXT}, (3, b"a"), (4, None))
    assert decode_rows(rows, Line, "utf-8") == [Line("a", 3), Line(None, 4)]


def test_times_and_positions_are_numbers() -> None:
    rows = result({"name": TEXT, "pages": INT, "seen_at": TIMESTAMPTZ, "lsn": LSN}, (None, 0, 1, -1))
    assert decode_rows(rows, Line, "utf-8") == [Line(None, 0, 946_684_800_000_001, (1 << 64) - 1)]
    never = result({"name": TEXT, "pages": INT, "seen_at": TIMESTAMPTZ}, (None, 0, (1 << 63) - 1))
    assert decode_rows(never, Line, "utf-8") == [Line(None, 0, None)], "infinity"


def test_a_text_that_is_not_utf_8_is_decoded_by_the_encoding_of_the_database() -> None:
    rows = result({"name": TEXT, "pages": INT}, ("é".encode(), 1), (b"\xe9", 2))
    assert [line.name for line in decode_rows(rows, Line, "iso8859-1")] == ["é", "é"]


def test_a_result_without_rows_has_no_records() -> None:
    assert decode_rows(result({"name": TEXT, "pages": INT}), Line, "utf-8") == []


def test_a_column_without_a_field_and_a_field_without_a_column_are_errors() -> None:
    with pytest.raises(TypeError, match="Line has no field size"):
        decode_rows(result({"name": TEXT, "pages": INT, "size": INT}, (None, 1, 2)), Line, "utf-8")
    with pytest.raises(TypeError, match=r"no column for Line\.pages"):
        decode_rows(result({"name": TEXT}, (b"a",)), Line, "utf-8")


def test_a_part_has_fields_of_single_rows_and_lists_of_records() -> None:
    rows = {
        "main": result({"pages": INT, "reset": INT}, (7, 1)),
        "more": result({"reset": INT}, (2,)),
        "lines": result({"name": TEXT, "pages": INT}, (b"a", 3)),
    }
    assert PartDecoder(PART, "utf-8").decode(rows) == Document(7, 2, [Line("a", 3)])
    rows["more"] = result({"reset": INT}, (None,))
    assert PartDecoder(PART, "utf-8").decode(rows).reset == 1, "what the later query does not know"


def test_what_a_refused_query_would_have_given_has_its_default() -> None:
    assert PartDecoder(PART, "utf-8").decode({"main": result({"pages": INT}, (7,))}) == Document(7)
