"""Whatever a finding is called and says, and however many there are: band, list and evidence fit, and are harmless."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from dba_console.tui.findings import EvidenceView, FindingsView
from dba_console.tui.screen_view import Scene
from dba_console.watch.drawing.findings import (
    all_evidence_lines,
    compact,
    detail,
    list_lines,
    not_silenced,
)
from dba_console.watch.drawing.text_elements import Line, Span, line_text, line_width, scrolled_lines
from dba_console.watch.drawing.time_formats import format_rfc3339
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame
from tests import build
from tests.panels.random_frames import random_history

SIGNS = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
HOSTILE = st.sampled_from(
    ("[red]x[/]", "表" * 90, "\x1b[2Jgone", "a b " * 200, "e\u0301" * 60, "\u202eabc", "", "x" * 900)
)  # fmt: skip
TEXTS = st.one_of(SIGNS, HOSTILE)
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(-5, 1 << 62), st.floats(), TEXTS, st.lists(TEXTS, max_size=3))
KNOWN = st.sampled_from(["connections.used", "io.psi_full_pct", "memory.cached_bytes"])
SERIES = st.one_of(KNOWN, TEXTS.map(lambda text: f"mount:{text}.used_bytes"))
TIMES = st.one_of(st.none(), st.integers(-4_000_000_000, 1_000_000).map(lambda us: format_rfc3339(build.NOW_US + us)))
FINDINGS = st.builds(
    Finding,
    id=TEXTS, severity=st.sampled_from(["info", "warning", "critical", "?"]), subject=TEXTS, text=TEXTS,
    evidence=st.dictionaries(TEXTS, NUMBERS, max_size=6), runbook=st.one_of(st.none(), TEXTS), since=TIMES, rule=TEXTS,
    at=TIMES, chain=st.lists(TEXTS, max_size=4), series=st.lists(SERIES, max_size=9),
    advice=st.one_of(st.none(), TEXTS), state=st.sampled_from(["open", "acknowledged", "silenced"]),
    who=st.one_of(st.none(), TEXTS), note=st.one_of(st.none(), TEXTS), until=TIMES,
)  # fmt: skip
MANY = st.lists(FINDINGS, max_size=12, unique_by=lambda one: one.id)
WIDTHS, HEIGHTS = st.integers(20, 210), st.integers(0, 60)


def frame_with(findings: list[Finding]) -> Frame:
    frame = build.busy_frame()
    frame.findings, frame.judged = findings, True
    return frame


def too_wide(lines: Iterable[Line], width: int) -> list[str]:
    return [line_text(line) for line in lines if line_width(line) > width]


def harmful(lines: Iterable[Line]) -> list[Span]:
    """Spans with signs that move a cursor, hide or reorder text."""
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [span for line in lines for span in line if any(unicodedata.category(sign) in bad for sign in span.text)]


def random_past(frame: Frame, seed: int) -> ChartHistory:
    return random_history(seed, frame.at_us)


@given(found=MANY, width=WIDTHS, height=HEIGHTS)
def test_the_band_keeps_its_height_and_shows_every_finding_that_fits(
    found: list[Finding], width: int, height: int
) -> None:
    lines = list_lines(not_silenced(found), width, height)
    assert min(height, len(not_silenced(found))) <= len(lines) <= height
    assert len(compact(frame_with(found), width, height, ChartHistory())) <= height
    assert harmful(lines) == []


@given(one=FINDINGS, width=WIDTHS, height=HEIGHTS, seed=st.integers(0, 1000))
def test_the_evidence_fits_any_screen_and_scrolling_reaches_every_line(
    one: Finding, width: int, height: int, seed: int
) -> None:
    frame = frame_with([one])
    lines = scrolled_lines(all_evidence_lines(frame, one, random_past(frame, seed), width, height), 0, height)
    assert len(lines) <= height
    assert too_wide(lines, width) == []
    assert harmful(lines) == []
    whole = all_evidence_lines(frame, one, random_past(frame, seed), width, height)
    if 1 < height < len(whole):
        assert scrolled_lines(whole, len(whole) - height, height) == whole[-height:]


@given(found=MANY, width=WIDTHS, height=st.integers(3, 60), seed=st.integers(0, 1000))
def test_list_and_evidence_fit_the_screen_whatever_is_open(
    found: list[Finding], width: int, height: int, seed: int
) -> None:
    frame = frame_with(found)
    scene = Scene(frame, random_past(frame, seed), "")
    views: list[FindingsView | EvidenceView] = [
        FindingsView(),
        *(EvidenceView(one.id) for one in found[:2]),
        EvidenceView("\x1b[2J"),
    ]
    for view in views:
        lines = view.lines(scene, width, height)
        assert len(lines) <= height
        assert too_wide(lines, width) == []
        assert harmful(lines) == []
        assert view.hints[0] == "back" and view.hints[-1] == "quit"


@given(found=MANY, width=WIDTHS)
def test_every_finding_is_a_row_with_a_cell_for_each_column(found: list[Finding], width: int) -> None:
    tables = detail(frame_with(found), width, ChartHistory()).tables
    rows = [row for table in tables for row in table.rows]
    assert sorted(row.key for row in rows) == sorted(one.id for one in found)
    assert all(len(row.cells) == len(table.columns) for table in tables for row in table.rows)
    assert all(cell.text.isprintable() for row in rows for cell in row.cells)
