"""The safety panel: numbers that are not of now say so."""

from __future__ import annotations

from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame, Safety
from dba_console.watch.panels.registry import PANELS
from dba_console.watch.panels.text_elements import line_text


def shown(frame: Frame) -> str:
    return "\n".join(line_text(line) for line in PANELS["safety"].compact(frame, 78, 6, ChartHistory()))


def test_an_xid_rate_that_is_not_current_shows_its_age() -> None:
    frame = Frame(safety=Safety(status="ok", xid_age=5, xids_per_s=67.9, age_s=18.0))
    assert "xids used 68/s (18s old)" in shown(frame)
    frame.safety.age_s = 1.0
    assert "old)" not in shown(frame)
