"""The footer offers the keys that do something here."""

from __future__ import annotations

from dba_console.tui.time_cursor import initial_cursor
from dba_console.tui.view_stack import OverviewView, footer_line, notice_lines
from dba_console.watch.drawing.text_elements import line_text


def footer(*, can_go_live: bool) -> str:
    return line_text(footer_line(OverviewView.hints, "overview", initial_cursor(can_go_live=can_go_live), 100))


def test_a_recording_offers_no_marks_as_it_could_not_store_them() -> None:
    assert "m mark" in footer(can_go_live=True)
    assert "mark" not in footer(can_go_live=False)


def test_the_end_key_of_a_recording_goes_to_its_newest_time() -> None:
    assert "end newest" in footer(can_go_live=False)


def test_a_long_sentence_is_shown_whole_over_the_lines_above() -> None:
    refused = "a run is under way: Drop the page cache (20261120T145307Z-cache-drop-a1b2), driven by ann; one at a time"
    lines = notice_lines(refused, 80)
    assert " ".join(line_text(one).strip() for one in lines) == refused and len(lines) == 2
    assert len(notice_lines("word " * 500, 80)) == 4
