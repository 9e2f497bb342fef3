"""Whatever a frame holds, what the panels make of it fits, is harmless, and says something."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from dba_console.watch.drawing.header import HeaderState, header
from dba_console.watch.drawing.overview import overview, show_json, show_text
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import Line, line_width
from tests.panels.random_frames import random_frame, random_history

SEEDS = st.integers(0, 10_000)


def harmless(lines: Iterable[Line]) -> bool:
    """No sign that moves a cursor, hides or reorders text."""
    return all(
        unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
        for one in lines
        for span in one
        for sign in span.text
    )


@given(seed=SEEDS, width=st.integers(1, 210), height=st.integers(1, 60), ascii=st.booleans())
def test_the_overview_is_never_wider_nor_higher_than_the_screen(
    seed: int, width: int, height: int, ascii: bool
) -> None:
    frame = random_frame(seed)
    lines = overview(frame, random_history(seed, frame.at_us), width, height, ascii=ascii)
    assert len(lines) <= height
    assert [line_width(one) for one in lines if line_width(one) > width] == []
    assert harmless(lines)
    if ascii:
        assert all(span.text.isascii() for one in lines for span in one)


@given(seed=SEEDS, width=st.integers(1, 210), height=st.integers(0, 12))
def test_no_panel_takes_more_lines_than_it_was_given(seed: int, width: int, height: int) -> None:
    frame = random_frame(seed)
    history = random_history(seed, frame.at_us)
    for kind in PANELS.values():
        lines = kind.compact(frame, width, height, history)
        assert len(lines) <= height, kind.name
        assert harmless(lines), kind.name


@given(seed=SEEDS, width=st.integers(1, 210), height=st.integers(1, 12), spare=st.integers(1, 40))
def test_a_panel_with_space_to_spare_is_the_same_as_without(seed: int, width: int, height: int, spare: int) -> None:
    # A layout draws a panel once with all the space that it may get, and keeps that if it fits.
    frame = random_frame(seed)
    history = random_history(seed, frame.at_us)
    for kind in PANELS.values():
        spacious = kind.compact(frame, width, height + spare, history)
        if len(spacious) <= height:
            assert kind.compact(frame, width, height, history) == spacious, kind.name


@given(seed=SEEDS, width=st.integers(20, 210))
def test_every_row_of_every_table_has_a_sanitized_cell_for_each_column(seed: int, width: int) -> None:
    frame = random_frame(seed)
    for kind in PANELS.values():
        detail = kind.detail(frame, width, random_history(seed, frame.at_us))
        assert harmless(detail.head), kind.name
        for table in detail.tables:
            for row in table.rows:
                assert len(row.cells) == len(table.columns), table.id
                assert harmless(row.detail()), table.id
                assert all(cell.text.isprintable() for cell in row.cells), table.id


@given(seed=SEEDS, width=st.integers(1, 210), mode=st.sampled_from(["live", "paused", "replay", "text"]))
def test_the_header_is_exactly_one_screen_wide(seed: int, width: int, mode: str) -> None:
    # `mode` is drawn from exactly the words of the literal.
    line = header(random_frame(seed), HeaderState(mode, 42.0, 4.0, 761.0, 5.0), width)  # type: ignore[arg-type]
    assert line_width(line) == width
    assert harmless([line])


@given(seed=SEEDS, width=st.integers(40, 200))
def test_text_of_all_panels_keeps_to_the_width(seed: int, width: int) -> None:
    frame = random_frame(seed)
    for names in (None, list(PANELS)):
        text = show_text(frame, names, width, random_history(seed, frame.at_us), ascii=True)
        assert text.endswith("\n")
        assert max(map(len, text.splitlines())) <= width


@given(seed=SEEDS)
def test_json_is_one_line_that_any_parser_accepts(seed: int) -> None:
    data = show_json(random_frame(seed))
    assert b"\n" not in data
    assert set(json.loads(data)) == {"at", "seq", "target", "panels", "findings", "self"}
