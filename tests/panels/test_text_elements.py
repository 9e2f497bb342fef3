"""The small words: bars, wrapped sentences, titles."""

from __future__ import annotations

from dba_console.watch.drawing.phrases import (
    bar,
    body,
    first_fitting,
    join,
    join_fitting,
    query_lines,
    rate_change,
    reflow,
    text_line,
    time_ahead,
    title_suffix,
)
from dba_console.watch.drawing.text_elements import fit, line_text, text_width, wrap_words
from dba_console.watch.drawing.time_formats import parse_rfc3339, stopwatch
from dba_console.watch.io.panel import IoPanel
from dba_console.watch.panel import PanelFrame


def test_wide_characters_are_cut_so_that_cells_line_up() -> None:
    assert text_width(fit("表表表", 4)) == 4
    assert text_width(fit("表表表", 5)) == 5


def test_a_bar_is_full_only_at_100_percent_and_empty_only_at_0() -> None:
    assert bar(100, 5) == "▇▇▇▇▇"
    assert bar(99.9, 5) == "▇▇▇▇▁"
    assert bar(0.1, 5) == "▇▁▁▁▁"
    assert bar(0, 5) == "▁▁▁▁▁"
    assert bar(None, 5) == "     "


def test_a_word_longer_than_the_line_is_split_and_nothing_is_lost() -> None:
    assert wrap_words("a " + "x" * 11, 5) == ["a", "xxxxx", "xxxxx", "x"]


def test_wrapping_one_wide_character_into_one_cell_ends() -> None:
    assert wrap_words("表表", 1) == ["表", "表"]


def test_a_change_has_a_direction_only_if_there_is_one() -> None:
    assert [rate_change(one) for one in (1 << 20, -(1 << 20), 0.0, None)] == [
        "▲ 1.0 MB/s",
        "▼ 1.0 MB/s",
        "= 0 B/s",
        "?",
    ]


def test_a_distant_time_has_no_false_digits() -> None:
    assert [time_ahead(one) for one in (230.0, 41.4 * 86400, 5 * 365 * 86400.0, 1e300, None)] == [
        "3m50s", "41d", "5y", ">1000y", "?",
    ]  # fmt: skip


def test_the_shorter_wording_is_used_before_anything_is_cut() -> None:
    assert first_fitting(6, text_line("waiting 3"), text_line("w 3")) == text_line("w 3")
    assert line_text(join_fitting(9, [text_line("one"), text_line("two"), text_line("three")])) == "one · two"


def test_a_title_shows_the_status_in_words() -> None:
    assert title_suffix(PanelFrame(age_s=0.1)) == ""
    assert title_suffix(PanelFrame(status="stale", age_s=12.0)) == "12s old"
    assert title_suffix(PanelFrame(status="timeout", age_s=12.0)) == "timeout, 12s old"
    assert title_suffix(PanelFrame(status="denied")) == "denied"
    assert title_suffix(IoPanel(status="error", age_s=32.0, procs_blocked=0)) == "32s old"
    assert title_suffix(IoPanel(status="error", age_s=32.0)) == "error, 32s old"
    assert title_suffix(IoPanel(status="unsupported", procs_blocked=0)) == "partly unsupported"
    assert title_suffix(PanelFrame(note="half of it could not be read")) == "!"


def test_the_note_replaces_missing_numbers() -> None:
    panel = PanelFrame(status="denied", note="GRANT pg_monitor TO app would help")
    assert [line_text(one) for one in body(panel, False, [text_line("0")], 20, 4)] == [
        "GRANT pg_monitor TO",
        "app would help",
    ]


def test_a_status_without_a_note_is_still_a_sentence() -> None:
    assert line_text(body(PanelFrame(status="timeout"), False, [], 40, 4)[0]) == "did not answer in time"


def test_times_without_a_zone_are_utc_and_invalid_ones_unknown() -> None:
    assert parse_rfc3339("2026-11-20T14:57:29") == parse_rfc3339("2026-11-20T14:57:29Z")
    assert parse_rfc3339("") is None
    assert parse_rfc3339("99999") is None


def test_a_pause_longer_than_an_hour_has_hours() -> None:
    assert stopwatch(-3661) == "-01:01:01"


def test_facts_that_do_not_fit_on_one_line_continue_in_the_next() -> None:
    lines = reflow(join([text_line("one"), text_line("two"), text_line("three")]), 9)
    assert [line_text(one) for one in lines] == ["one · two", "three"]


def test_a_cut_query_shows_how_much_of_it_is_shown() -> None:
    def shown(whole: int | None) -> list[str]:
        return ["".join(span.text for span in line) for line in query_lines("select 1", whole)]

    assert shown(940 << 10) == ["select 1", "the first 4.0 kB of 940 kB; the rest was not read"]
    assert shown(None) == ["select 1"]
