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


def test_a_delayed_standby_names_the_setting_and_is_late_only_beyond_it() -> None:
    frame = busy_frame()
    panel = frame.replication
    panel.role, panel.receiver_status, panel.lag_bytes = "standby", "streaming", 4096
    panel.lag_s, panel.apply_delay_s = 3605.0, 3600.0
    lag, delay = PANELS["replication"].compact(frame, 90, 3, History())[0][:4], "recovery_min_apply_delay 1h00"
    assert delay in plain(PANELS["replication"].compact(frame, 90, 3, History())[0])
    assert not {"warn", "crit"} & {span.style for span in lag}


def test_a_receiver_this_role_may_not_see_is_not_called_none() -> None:
    frame = busy_frame()
    panel = frame.replication
    panel.role, panel.receiver_status, panel.receiver_host, panel.receiver_pid = "standby", None, None, 7
    assert "receiver ?" in plain(PANELS["replication"].compact(frame, 80, 3, History())[0])
