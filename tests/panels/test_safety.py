"""The safety panel: numbers that are not of now say so."""

from __future__ import annotations

from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.safety.panel import SafetyPanel


def shown(frame: Frame) -> str:
    return "\n".join(line_text(line) for line in PANELS["safety"].compact(frame, 78, 6, ChartHistory()))


def test_an_xid_rate_that_is_not_current_shows_its_age() -> None:
    panel = SafetyPanel(status="ok", xid_age=5, xids_per_s=67.9, age_s=18.0)
    frame = Frame(panels={"safety": panel})
    assert "xids used 68/s (18s old)" in shown(frame)
    panel.age_s = 1.0
    assert "old)" not in shown(frame)
