"""A standby tells first what is asked of it first."""

from __future__ import annotations

from dba_console.frames.history import History
from dba_console.panels.cells import plain
from dba_console.panels.registry import PANELS
from tests.build import busy_frame


def test_a_standby_s_lag_stands_before_the_name_of_where_it_streams_from() -> None:
    frame = busy_frame()
    panel = frame.replication
    panel.role, panel.receiver_status, panel.receiver_host = "standby", "streaming", "a-primary-with-a-long-name"
    panel.lag_bytes, panel.lag_s = 4096, 0.5
    first = plain(PANELS["replication"].compact(frame, 38, 3, History())[0])
    assert "lag" in first and "4.0 kB" in first
