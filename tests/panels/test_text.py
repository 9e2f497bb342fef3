"""What `show` prints."""

from __future__ import annotations

import json

import pytest

from dba_console.core.errors import UsageError
from dba_console.watch.drawing.overview import show_json, show_text
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.frames.model import Frame
from dba_console.watch.subjects import PANEL_NAMES
from tests.build import NOW_US, busy_frame, busy_history, empty_frame
from tests.panels.golden import assert_golden


@pytest.mark.parametrize("name", list(PANELS))
def test_a_full_panel_matches_its_golden_text(name: str, frame: Frame) -> None:
    frame.sessions.rows = frame.sessions.rows[190:]
    assert_golden(f"show_{name}", show_text(frame, [name], 120, busy_history()))


def test_without_names_the_overview_follows_the_header() -> None:
    lines = show_text(busy_frame(), None, 80, busy_history()).splitlines()
    assert lines[0].startswith("db2 primary")
    assert lines[1].startswith("─ Connections ")


def test_an_unknown_panel_name_is_refused_with_the_existing_names() -> None:
    with pytest.raises(UsageError) as caught:
        show_text(busy_frame(), ["conections"], 80)
    assert "conections" in caught.value.message
    assert caught.value.hint is not None and "connections" in caught.value.hint


def test_text_leaves_out_columns_that_are_blank_in_every_row(frame: Frame) -> None:
    for row in frame.connections.by_user:
        row.limit = None
    text = show_text(frame, ["connections"], 120)
    assert "limit" not in text.split("By user")[1].split("By database")[0]
    assert "limit" in text.split("By database")[1]


def test_json_has_the_shape_of_the_contract() -> None:
    tick = json.loads(show_json(busy_frame()))
    assert list(tick) == ["at", "seq", "target", "panels", "findings", "self"]
    assert tick["at"] == "2026-11-20T14:57:29.000000Z"
    assert list(tick["panels"]) == list(PANEL_NAMES)
    assert list(tick["panels"]["io"])[:3] == ["status", "note", "age_s"]
    assert tick["target"]["server_version"] == 150018
    assert tick["self"]["stuck_lanes"] == 1
    assert tick["panels"]["locks"]["trees"][0]["waiters"][0]["pid"] == 8123


def test_json_writes_unknown_values_as_null() -> None:
    tick = json.loads(show_json(empty_frame()))
    assert tick["panels"]["connections"]["used"] is None
    assert tick["panels"]["io"]["iowait_pct"] is None


def test_json_contains_no_nan_or_infinity() -> None:
    frame = Frame(at_us=NOW_US)
    frame.io.iowait_pct, frame.io.read_bytes_per_s = float("nan"), float("inf")
    tick = json.loads(show_json(frame))
    assert tick["panels"]["io"]["iowait_pct"] is None
    assert tick["panels"]["io"]["read_bytes_per_s"] is None
