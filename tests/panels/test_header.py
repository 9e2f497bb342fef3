"""The first line says what is wrong before what is nice to know."""

from __future__ import annotations

from dataclasses import replace

from dba_console.watch.drawing.header import HeaderState, header
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.model import Frame
from tests.build import busy_frame, empty_frame

LIVE = HeaderState("live", recording_s=761.0, age_s=0.2)


def line(frame: Frame, showing: HeaderState, width: int = 100) -> str:
    return line_text(header(frame, showing, width))


def test_a_healthy_live_screen_shows_server_time_and_recording(frame: Frame) -> None:
    frame.own.stuck_lanes = 0
    shown = "db2 primary · PG 15.18 · up 12d4h · 14:57:29 ● rec 00:12:41 1 Hz LIVE"
    assert line(frame, LIVE, 80).split() == shown.split()


def test_the_age_of_the_data_is_shown_after_more_than_two_ticks() -> None:
    assert "old" not in line(busy_frame(), HeaderState("live", age_s=2.0))
    assert "data 5.0s old" in line(busy_frame(), HeaderState("live", age_s=5.0))
    assert "NOT LIVE" in line(busy_frame(), HeaderState("live", age_s=5.0))
    assert "old" not in line(busy_frame(), HeaderState("live", age_s=9.0, interval_s=5.0))


def test_paused_shows_the_lag_and_replay_shows_time_and_speed() -> None:
    assert "PAUSED -00:42" in line(busy_frame(), HeaderState("paused", behind_s=42.0))
    assert "REPLAY 2026-11-20 14:57:29 ×4" in line(busy_frame(), HeaderState("replay", speed=4.0))
    assert "PAUSED" in line(busy_frame(), HeaderState("replay", speed=0.0))


def test_a_pooler_in_between_is_named(frame: Frame) -> None:
    frame.target.through = "PgBouncer 1.21.0 (transaction)"
    assert "via PgBouncer 1.21.0 (transaction)" in line(frame, LIVE, 120)


def test_a_server_not_proven_to_be_local_is_sql_only(frame: Frame) -> None:
    assert "SQL only" not in line(frame, LIVE)
    for place in (False, None):
        frame.target.local = place
        assert "SQL only" in line(frame, LIVE)


def test_an_open_connection_without_answers_is_reported(frame: Frame) -> None:
    frame.connections.status, frame.connections.age_s = "timeout", 13.0
    assert "NO ANSWER for 13s" in line(frame, LIVE, 80)


def test_stuck_lanes_and_drops_are_shown_as_words_with_their_number(frame: Frame) -> None:
    frame.own.stuck_lanes, frame.own.dropped = 2, 17
    text = line(frame, LIVE)
    assert "2 reads hang" in text
    assert "17 dropped" in text


def test_a_narrow_screen_drops_the_uptime_before_a_warning(frame: Frame) -> None:
    frame.target.state = "blind"
    text = line(frame, HeaderState("live", recording_s=761.0, age_s=7.0), 60)
    assert "BLIND: no connection" in text
    assert "data 7.0s old" in text
    assert "up 12d4h" not in text


def test_a_failed_recording_stays_longer_than_the_clock_on_a_narrow_screen(frame: Frame) -> None:
    frame.own.recording = "failed"
    text = line(frame, LIVE, 40)
    assert "rec failed" in text
    assert "14:57:29" not in text


def test_a_frame_without_a_recording_state_does_not_claim_to_be_recorded(frame: Frame) -> None:
    frame.own.recording = None
    assert "rec ?" in line(frame, LIVE)


def test_text_output_carries_the_date() -> None:
    assert "2026-11-20 14:57:29" in line(busy_frame(), HeaderState())


def test_the_configured_name_of_a_target_is_next_to_the_cluster_name(frame: Frame) -> None:
    assert line(frame, HeaderState("live", target_label="shop")).startswith("db2 primary · shop · PG 15.18")
    assert "db2 primary · PG 15.18" in line(frame, HeaderState("live", target_label="db2"))


def test_a_server_never_reached_is_shown_by_its_configured_name() -> None:
    assert line(empty_frame(), HeaderState("live", target_label="shop")).startswith("shop")


def test_the_host_is_next_to_the_server_and_is_not_cut_when_a_run_waits(frame: Frame) -> None:
    frame.target.name, frame.target.host = "practice", "db2"
    showing = HeaderState(
        "live", recording_s=761.0, age_s=0.2, target_label="shop:37229@db2", run_text="ANSWER NEEDED: w"
    )
    assert line(frame, showing, 120).startswith("practice primary on db2 · shop:37229 · ")
    for wanting in (False, True):
        waiting = replace(showing, run_needs_answer=wanting)
        assert line(frame, waiting, 60).startswith("practice primary on db2 ")
    frame.target.name = "db2"
    assert line(frame, showing, 120).startswith("db2 primary · shop:37229")


def test_two_servers_of_one_host_are_distinguished_by_their_ports(frame: Frame) -> None:
    frame.target.name = frame.target.host = "vm"
    frame.target.port = 5433
    assert line(frame, LIVE).split()[0] == "vm:5433"
    frame.target.port = 5432
    assert line(frame, LIVE).split()[0] == "vm"
    frame.target.name, frame.target.port = "shop", 5433
    assert line(frame, LIVE).split()[0] == "shop"
