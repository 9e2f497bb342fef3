"""The overview at the sizes people have."""

from __future__ import annotations

import pytest

from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.console.panel import EventRow
from dba_console.watch.drawing.overview import overview
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.locks.panel import LocksPanel
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.replication.panel import ReplicationPanel
from dba_console.watch.safety.panel import SafetyPanel
from tests.build import busy_frame, busy_history, empty_frame
from tests.panels.golden import assert_golden, text_of


def body(frame: Frame, width: int, height: int, history: ChartHistory | None = None, *, ascii: bool = False) -> str:
    lines = overview(frame, busy_history() if history is None else history, width, height, ascii=ascii)
    assert len(lines) == height
    return text_of(lines)


@pytest.mark.parametrize(("width", "height"), [(80, 22), (80, 48), (120, 36), (120, 22), (160, 46), (60, 18), (40, 10)])
def test_a_server_in_trouble_matches_the_golden_text(width: int, height: int) -> None:
    assert_golden(f"overview_{width}x{height}", body(busy_frame(), width, height))


def test_ascii_draws_the_same_frame_without_any_other_character() -> None:
    text = body(busy_frame(), 120, 36, ascii=True)
    assert text.isascii()
    assert_golden("overview_120x36_ascii", text)


def test_before_the_first_reading_nothing_is_shown_as_zero() -> None:
    text = body(empty_frame(), 80, 22, ChartHistory())
    assert "0" not in text
    assert text.count("not read yet") >= 8


def blind_frame() -> Frame:
    """No slot is free, one privilege is missing, one answer does not come, the recording has failed."""
    frame = busy_frame()
    frame.findings = []
    frame.target.state, frame.target.note = "blind", "no slot is free: the console takes one as soon as it can"
    frame.panels["connections"] = ConnectionsPanel(
        used=249, usable=247, used_pct=100.8, source="process_titles", age_s=0.1
    )
    frame.panels["safety"] = SafetyPanel(
        status="denied", note="this role may not see it: GRANT pg_monitor TO app would help"
    )
    frame.panels["replication"] = ReplicationPanel(
        status="denied", note="this role may not see it: GRANT pg_monitor TO app would help"
    )
    frame.panels["locks"] = LocksPanel(status="timeout", age_s=12.0, note="the server did not answer within 2 s")
    frame.panels["progress"] = ProgressPanel(status="stale", age_s=12.0, note="no connection")
    frame.memory.status, frame.memory.age_s = "stale", 12.0
    frame.io.status, frame.io.note = "unsupported", "this kernel has no pressure information: boot it with psi=1"
    frame.io.psi_some_avg10 = frame.io.psi_full_avg10 = None
    frame.own.recording, frame.own.recording_note = "failed", "the disk of the session is full"
    return frame


def test_an_unresponsive_server_is_reported_once_and_at_the_top(frame: Frame) -> None:
    frame.sessions.status, frame.target.note = "timeout", "the server has not answered for 6 s"
    assert text_of(overview(frame, ChartHistory(), 80, 22)).startswith(" ! the server has not answered for 6 s\n")


def test_a_stopped_postmaster_is_reported_although_its_sessions_continue(frame: Frame) -> None:
    frame.target.postmaster_stopped = True
    assert text_of(overview(frame, ChartHistory(), 80, 22)).startswith(" ! the postmaster is stopped")


def test_unreadable_values_are_reported_in_place_of_their_numbers() -> None:
    text = body(blind_frame(), 80, 22, ChartHistory())
    assert_golden("overview_80x22_blind", text)
    assert "GRANT" in text
    assert "timeout, 12s old" in text


def test_no_connection_and_a_failed_recording_are_shown_above_everything() -> None:
    lines = [line_text(one) for one in overview(blind_frame(), ChartHistory(), 80, 22)]
    assert lines[0] == " ! no slot is free: the console takes one as soon as it can"
    assert lines[1] == " ! the disk of the session is full"


def test_without_findings_the_latest_events_are_shown_in_their_place(frame: Frame) -> None:
    frame.findings = []
    text = body(frame, 80, 22)
    assert "─ Events ─" in text
    assert "Findings" not in text
    assert "pages are slow" in text


def test_heartbeats_are_not_shown_as_events(frame: Frame) -> None:
    frame.events.rows = [EventRow(at="2026-11-20T14:57:00Z", kind="heartbeat", tag="T", text="alive", seq=9)]
    assert "alive" not in body(frame, 80, 22)


def test_a_stale_panel_shows_its_age_in_its_title(frame: Frame) -> None:
    frame.memory.status, frame.memory.age_s = "stale", 12.0
    assert "─ Memory 12s old ─" in body(frame, 80, 22)


def test_ten_minutes_show_the_falling_cache_the_rising_free_memory_and_connections() -> None:
    lines = body(busy_frame(), 160, 46).splitlines()
    rows = {name: [one for one in lines if f" {name} " in one] for name in ("cached", "free")}
    assert rows["cached"] and rows["free"]
    top_of_cached = next(one for one in lines if "│ cached " in one).split("┤", 1)[1]
    top_of_free = next(one for one in lines if "│ free " in one and "┤" in one).split("┤", 1)[1]
    assert top_of_cached.startswith("▇▇▇") and top_of_cached.rstrip()[-1] != "▇"
    assert top_of_free.startswith("   ") and top_of_free.rstrip()[-1] == "▇"


def test_marks_are_above_the_minute_they_were_made_in() -> None:
    lines = body(busy_frame(), 120, 36).splitlines()
    signs = next(one for one in lines if one.startswith("  events "))
    clock = lines[lines.index(signs) + 1]
    # The mark of 14:55:30 lies between the two minutes.
    assert clock.index("14:55") < signs.index("m") < clock.index("14:56")


def test_locks_and_long_work_are_not_dropped_for_charts() -> None:
    text = body(busy_frame(), 120, 22)
    assert "← 8001 pg_dump" in text
    assert "68% est" in text


@pytest.mark.parametrize(("width", "height"), [(0, 10), (10, 0), (1, 1), (3, 2)])
def test_a_very_small_terminal_breaks_nothing(width: int, height: int) -> None:
    assert len(overview(busy_frame(), busy_history(), width, height)) <= height


def test_at_160_by_50_blockers_are_shown_before_sessions_get_space(frame: Frame) -> None:
    frame.sessions.rows = frame.sessions.rows * 40
    text = body(frame, 160, 46)
    assert "8001 pg_dump active, holds AccessShareLock" in text
    assert text.count("└ 8123") == 1
    assert "68% est" in text and "41% measured" in text and "progress ?" in text


@pytest.mark.parametrize("height", [22, 24, 26])
def test_slightly_more_space_does_not_hide_the_root_blocker_behind_sessions(height: int) -> None:
    assert "8001 pg_dump active, holds AccessShareLock" in body(busy_frame(), 100, height)


def test_an_empty_panel_keeps_only_its_title_when_another_one_is_cut(frame: Frame) -> None:
    frame.panels["locks"] = LocksPanel(waiting=0, age_s=0.1)
    frame.panels["progress"] = ProgressPanel(age_s=0.1)
    crowded, roomy = body(frame, 80, 22), body(frame, 80, 60)
    assert "─ Locks · no lock waits ─" in crowded and "─ Dump & restore · no dump, restore" in crowded
    assert "\n no lock waits" in roomy
