"""Pictures of one moment: in place to the cell, drawn without fetching anything; and the panels as text."""

from __future__ import annotations

import io
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from dba_console.core.errors import SessionError, Unsupported
from dba_console.reports.export_formats import Exporter, Span
from dba_console.reports.pictures import ZOOM, export_png, export_svg, export_text, require_png
from dba_console.reports.svg import HEIGHT, MARGIN, WIDTH, drawing, shape
from dba_console.watch.drawing.text_elements import Span as TextSpan
from tests.requirements import lacking
from tests.unit.recording.recordings import ticks
from tests.unit.reports.sessions import SECOND, event, hostile_ticks, recorded, sampled

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[tuple[float, str]]:
    """The words of a drawing and where they begin, in cells."""
    root = ElementTree.fromstring(svg)
    return [(round(float(word.attrib["x"]) / WIDTH, 3), word.text or "") for word in root.iter(f"{SVG}text")]


def test_a_word_is_at_its_cell_whatever_characters_come_before_it() -> None:
    svg = drawing([(TextSpan("a ▇▇ 表  b c"), TextSpan("d"))], 20)
    assert texts(svg) == [(0, "a"), (5, "表"), (9, "b c"), (12, "d")]


def test_text_from_the_server_is_escaped() -> None:
    assert texts(drawing([(TextSpan("a<b&c>"),)], 10)) == [(0, "a<b&c>")]


def test_a_drawing_is_as_large_as_its_lines_and_columns() -> None:
    box = ElementTree.fromstring(drawing([(), (), ()], 40)).attrib
    assert float(box["width"]) == pytest.approx(40 * WIDTH + 2 * MARGIN, abs=0.01)
    assert float(box["height"]) == 3 * HEIGHT + 2 * MARGIN


def test_reverse_video_colours_the_background_of_the_whole_text() -> None:
    svg = drawing([(TextSpan("ab", "selected"),)], 10)
    _paper, behind = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    assert float(behind.attrib["width"]) == pytest.approx(2 * WIDTH, abs=0.01)


def test_colours_bold_and_dim_text_of_the_screen_are_drawn() -> None:
    svg = drawing([(TextSpan("x", "crit"), TextSpan("y", "dim"))], 10)
    root = ElementTree.fromstring(svg)
    (first, second) = root.iter(f"{SVG}text")
    assert first.attrib["font-weight"] == "700" and first.attrib["fill"] != second.attrib["fill"]
    assert "opacity" in second.attrib and "opacity" not in first.attrib


def test_lines_of_neighbouring_cells_meet() -> None:
    ends = []
    for column in (0, 1):
        path = shape("─", column, 0) or ""
        moves = [tuple(map(float, move)) for move in re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", path)]
        ends.append((min(begin for begin, _ in moves), max(end for _, end in moves)))
    assert ends[0][1] >= ends[1][0]


def test_letters_are_drawn_with_the_font() -> None:
    assert shape("a", 0, 0) is None and shape("●", 0, 0) is None


@pytest.fixture(scope="module")
def span(tmp_path_factory: pytest.TempPathFactory) -> Span:
    return sampled(recorded(tmp_path_factory.mktemp("session"), ticks(10), [event(4, "mark", "release <4.2>")]))


def exported(export: Exporter, span: Span, **options: Any) -> bytes:
    file = io.BytesIO()
    export(span, file, lambda share: None, **options)
    return file.getvalue()


def at(span: Span, second: float) -> Span:
    """The moment that many seconds after the first sample."""
    moment = span.from_us + int(second * SECOND)
    return Span(span.recording, moment, moment)


def test_an_svg_shows_the_screen_of_its_moment(span: Span) -> None:
    before, after = (exported(export_svg, at(span, second), size="100x30").decode() for second in (2, 5))
    assert "release &lt;4.2&gt;" in after and "release" not in before
    words = [text for _, text in texts(after)]
    assert any("2026-11-20T14:57:35Z" in word for word in words)
    assert float(ElementTree.fromstring(after).attrib["width"]) == pytest.approx(100 * WIDTH + 2 * MARGIN, abs=0.01)


def test_a_panel_is_drawn_in_full_instead_of_the_overview(span: Span) -> None:
    words = " ".join(text for _, text in texts(exported(export_svg, at(span, 5), panel=["safety"]).decode()))
    assert "Safety" in words and "Connections" not in words


def test_a_moment_without_a_sample_shows_the_one_before_and_says_so(tmp_path: Path) -> None:
    samples = [sample for sample in ticks(60) if not 10 < sample.seq < 50]
    drawn = exported(export_svg, at(sampled(recorded(tmp_path, samples)), 29)).decode()
    assert "no samples for 20s from" in drawn


def test_a_moment_before_the_recording_is_refused(span: Span) -> None:
    with pytest.raises(SessionError, match="nothing was recorded at or before"):
        exported(export_svg, at(span, -60))


def test_a_png_has_the_size_of_the_screen_and_its_text(span: Span) -> None:
    try:
        require_png()
    except Unsupported as missing:
        lacking(missing.message)
    data, other = (exported(export_png, at(span, second), size="80x24") for second in (2, 5))
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data != other
    wide, high = struct.unpack(">II", data[16:24])
    assert wide == pytest.approx((80 * WIDTH + 2 * MARGIN) * ZOOM, abs=1)
    assert high == pytest.approx((24 * HEIGHT + 2 * MARGIN) * ZOOM, abs=1)


def test_without_the_renderer_png_says_what_to_install(span: Span, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(Unsupported, match="resvg-py") as caught:
        exported(export_png, at(span, 5))
    assert caught.value.hint is not None and "dba-console[pictures]" in caught.value.hint


def test_no_escape_and_no_markup_of_a_query_reaches_picture_or_text(tmp_path: Path) -> None:
    span = sampled(recorded(tmp_path, hostile_ticks(ticks(4))))
    svg, text = (exported(export, span, size="200x50").decode() for export in (export_svg, export_text))
    assert all(sign.isprintable() or sign == "\n" for sign in svg + text)
    assert "select 1 -- ␛]0;owned␇␛[2J" in text
    assert {word.tag for word in ElementTree.fromstring(svg).iter()} <= {f"{SVG}{tag}" for tag in _TAGS}


_TAGS = ("svg", "rect", "g", "path", "text")


def test_text_of_one_moment_is_that_of_show(span: Span) -> None:
    text = exported(export_text, at(span, 5), panel=["events"], size="80x24").decode()
    assert "2026-11-20 14:57:35" in text.splitlines()[0] and "release <4.2>" in text


def test_text_of_a_span_is_written_after_each_change_only(tmp_path: Path) -> None:
    marks = [event(second, "mark", f"mark {second}") for second in (4.5, 7.5)]
    text = exported(export_text, sampled(recorded(tmp_path, ticks(10), marks)), panel=["events"], size="80x24").decode()
    assert re.findall(r"^\S.* · (2026-11-20 \S+)$", text, re.MULTILINE) == [
        f"2026-11-20 14:57:{second}" for second in (30, 34, 37)
    ]


def test_text_says_where_samples_are_missing(tmp_path: Path) -> None:
    samples = [sample for sample in ticks(60) if not 10 < sample.seq < 50]
    text = exported(export_text, sampled(recorded(tmp_path, samples)), panel=["own"], size="80x24").decode()
    assert re.findall("^-- no samples for 40s from .*$", text, re.MULTILINE)
