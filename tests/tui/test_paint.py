"""Lines to cells: nothing is wider than its place, nothing is lost where it is wrapped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dba_console.tui.console import paint, style_table
from dba_console.watch.drawing.text_elements import Span, clean, line_breaks, line_width, text_width, wrap, wrap_line

TEXTS = st.text(alphabet=st.sampled_from("abc xyz ,表é́e[/]"), max_size=60)


@given(TEXTS, st.integers(2, 30))
def test_a_wrapped_text_fits_and_loses_only_spaces(text: str, cells: int) -> None:
    pieces = wrap(text, cells)
    assert all(text_width(piece) <= cells for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_words_are_kept_whole_where_there_is_a_space() -> None:
    assert wrap("select name from customers", 12) == ["select name", "from", "customers"]


def test_an_empty_text_is_one_empty_line() -> None:
    assert line_breaks("", 10) == [(0, 0)]


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["", "warn"])), max_size=5), st.integers(2, 30))
def test_a_wrapped_line_keeps_the_style_of_each_piece(parts: list[tuple[str, str]], cells: int) -> None:
    spans = tuple(Span(text, style) for text, style in parts)  # type: ignore[arg-type]
    lines = wrap_line(spans, cells)
    assert all(line_width(one) <= cells for one in lines)
    warned = "".join(span.text for one in lines for span in one if span.style == "warn")
    assert warned.replace(" ", "") == "".join(text for text, style in parts if style == "warn").replace(" ", "")


@given(st.text(max_size=40), st.integers(1, 40))
def test_a_painted_line_has_exactly_the_cells_of_its_area(text: str, cells: int) -> None:
    strip = paint((Span(clean(text), "crit"),), cells, style_table("16"))
    assert text_width("".join(segment.text for segment in strip)) == cells


def test_markup_in_server_text_is_shown_verbatim() -> None:
    strip = paint((Span("select a[1] -- [bold red]x[/]"),), 40, style_table("16"))
    assert "".join(segment.text for segment in strip).rstrip() == "select a[1] -- [bold red]x[/]"


def test_without_colour_no_style_has_a_colour() -> None:
    assert all(style.color is None and style.bgcolor is None for style in style_table("mono").values())


def test_with_sixteen_colours_only_those_of_the_terminal_are_used() -> None:
    numbers = [style.color.number for style in style_table("16").values() if style.color is not None]
    assert numbers and all(number is not None and number < 16 for number in numbers)
