"""The panel of a standby shows the most important lines first."""

from __future__ import annotations

from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.drawing.text_elements import line_text
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Frame
from dba_console.watch.replication.layout import standby_table
from dba_console.watch.replication.panel import StandbyRow
from dba_console.watch.sessions.layout import session_table
from dba_console.watch.sessions.panel import SessionRow

HIDDEN = StandbyRow(application="replica")
"""Of a role that may not see who it is."""


def test_the_lag_of_a_standby_comes_before_the_name_of_its_upstream(frame: Frame) -> None:
    panel = frame.replication
    panel.role, panel.receiver_status, panel.receiver_host = "standby", "streaming", "a-primary-with-a-long-name"
    panel.lag_bytes, panel.lag_s = 4096, 0.5
    first = line_text(PANELS["replication"].compact(frame, 38, 3, ChartHistory())[0])
    assert "lag" in first and "4.0 kB" in first


def test_a_delayed_standby_names_the_setting_and_is_late_only_beyond_it(frame: Frame) -> None:
    panel = frame.replication
    panel.role, panel.receiver_status, panel.lag_bytes = "standby", "streaming", 4096
    panel.lag_s, panel.apply_delay_s = 3605.0, 3600.0
    lag, delay = PANELS["replication"].compact(frame, 90, 3, ChartHistory())[0][:4], "recovery_min_apply_delay 1h00"
    assert delay in line_text(PANELS["replication"].compact(frame, 90, 3, ChartHistory())[0])
    assert not {"warn", "crit"} & {span.style for span in lag}


def test_a_receiver_hidden_from_this_role_is_not_shown_as_missing(frame: Frame) -> None:
    panel = frame.replication
    panel.role, panel.receiver_status, panel.receiver_host, panel.receiver_pid = "standby", None, None, 7
    assert "receiver ?" in line_text(PANELS["replication"].compact(frame, 80, 3, ChartHistory())[0])


def test_a_standby_over_a_socket_is_local_and_a_hidden_one_is_unknown() -> None:
    by_socket = StandbyRow(application="replica", state="streaming")
    reported = [[cell.text for cell in standby_table([row]).rows[0].cells][1] for row in (by_socket, HIDDEN)]
    assert reported == ["[local]", "?"]


def test_a_session_without_state_or_query_shows_none_and_a_hidden_one_says_so() -> None:
    def detail(row: SessionRow) -> str:
        return "\n".join(line_text(one) for one in session_table([row]).rows[0].detail())

    writer = detail(SessionRow(pid=7, backend_type="background writer", wait="Activity:BgWriterMain"))
    assert "type background writer" in writer and "state" not in writer.replace("process state", "")
    assert "query began" not in writer
    assert "state ? for ?" in detail(SessionRow(pid=8, user="bob"))
