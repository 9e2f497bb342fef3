"""Where the operator stands in time, key by key."""

from __future__ import annotations

from datetime import datetime

import pytest

from dba_console.tui.time_cursor import (
    SPEEDS,
    TimeCursor,
    faster,
    initial_cursor,
    lag_text,
    mode_label,
    moved_to,
    playback_us,
    slower,
    to_live,
    toggled,
)

S = 1_000_000


@pytest.fixture
def paused() -> TimeCursor:
    return toggled(initial_cursor(can_go_live=True), 100 * S)


def test_space_plays_on_from_where_the_operator_moved_to(paused: TimeCursor) -> None:
    playing = toggled(moved_to(paused, 50 * S), 142 * S)
    assert (playing.mode, playing.at_us) == ("playing", 50 * S)


def test_space_while_playing_pauses_right_there(paused: TimeCursor) -> None:
    playing = toggled(moved_to(paused, 50 * S), 142 * S)
    assert toggled(playing, 142 * S).mode == "paused"


def test_plus_plays_then_cycles_up_the_speeds_and_stays_at_the_last() -> None:
    cursor = faster(moved_to(initial_cursor(can_go_live=False), S))
    seen = []
    for _ in SPEEDS:
        seen.append(cursor.speed)
        cursor = faster(cursor)
    assert tuple(seen) == SPEEDS
    assert cursor.speed == SPEEDS[-1]


def test_minus_below_real_time_pauses() -> None:
    playing = faster(moved_to(initial_cursor(can_go_live=False), S))
    assert slower(playing).mode == "paused"


def test_live_cannot_be_accelerated() -> None:
    assert faster(initial_cursor(can_go_live=True)).live


def test_playing_at_four_times_advances_four_seconds_per_second() -> None:
    playing = faster(faster(faster(moved_to(initial_cursor(can_go_live=False), 10 * S))))
    assert playback_us(playing, S) == 14 * S
    assert playback_us(slower(slower(slower(playing))), S) is None


def test_a_recording_has_no_live_time_to_return_to() -> None:
    cursor = moved_to(initial_cursor(can_go_live=False), S)
    assert to_live(cursor) == cursor


def test_the_header_shows_live_paused_and_replay(paused: TimeCursor) -> None:
    assert mode_label(initial_cursor(can_go_live=True), 1) == "LIVE"
    assert mode_label(paused, 142 * S) == "PAUSED -00:42"
    at_us = int(datetime(2026, 11, 19, 14, 53, 7).timestamp()) * S
    replay = faster(faster(faster(moved_to(initial_cursor(can_go_live=False), at_us))))
    assert mode_label(replay, None) == "REPLAY 2026-11-19 14:53:07 ×4"


def test_the_lag_is_unknown_without_live_data() -> None:
    assert lag_text(None, 5) == lag_text(5, None) == ""
