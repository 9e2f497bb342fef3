"""The verdict of `check` on frames made by hand."""

from __future__ import annotations

import pytest

from dba_console.cli.check import judge
from dba_console.frames.model import Connections, Frame, TargetFrame


def frame(state: str = "connected", note: str | None = None, **connections: int | float | None) -> Frame:
    return Frame(target=TargetFrame(state=state, note=note), connections=Connections(**connections))  # type: ignore[arg-type]


@pytest.mark.parametrize(("pct", "code"), [(79.9, 0), (80.0, 1), (94.9, 1), (95.0, 2), (100.0, 2)])
def test_the_share_of_connections_decides(pct: float, code: int) -> None:
    assert judge(frame(used=int(pct), usable=100, used_pct=pct)).code == code


def test_a_share_that_is_not_known_is_unknown_and_not_ok() -> None:
    assert judge(frame()).code == 3


def test_no_connection_is_critical_with_the_reason() -> None:
    verdict = judge(frame("disconnected", "connection refused"))
    assert (verdict.code, verdict.text) == (2, "not connected: connection refused")


def test_blind_mode_is_critical_and_tells_what_process_titles_tell() -> None:
    verdict = judge(frame("blind", "no slot is free", used=97, usable=97, used_pct=100.0))
    assert verdict.code == 2
    assert "no slot is free; 97 of 97" in verdict.text
    assert "connections=97;77.6;92.15;0;97" in verdict.performance


def test_performance_data_has_no_limits_where_the_whole_is_not_known() -> None:
    assert judge(frame("blind", "x", used=5)).performance == "connections=5;;;0"
