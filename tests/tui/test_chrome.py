"""The footer offers the keys that do something here."""

from __future__ import annotations

from dba_console.panels.cells import plain
from dba_console.tui.chrome import footer_line
from dba_console.tui.cursor import start
from dba_console.tui.overview import OverviewView


def footer(*, has_present: bool) -> str:
    return plain(footer_line(OverviewView.hints, "overview", start(has_present=has_present), 100))


def test_a_recording_offers_no_marks_which_it_could_not_keep() -> None:
    assert "m mark" in footer(has_present=True)
    assert "mark" not in footer(has_present=False)


def test_the_end_key_of_a_recording_goes_to_its_newest_moment() -> None:
    assert "end newest" in footer(has_present=False)
