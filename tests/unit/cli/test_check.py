"""The verdict of `check` on frames made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.cli.check import Verdict, judge
from dba_console.frames.model import Connections, Finding, Frame, TargetFrame
from dba_console.limits.connections import ConnectionLimits


def frame(*findings: Finding, state: str = "connected", note: str | None = None, judged: bool = True) -> Frame:
    return Frame(
        target=TargetFrame(state=state, note=note),
        connections=Connections(used=50, usable=100, used_pct=50.0),
        findings=list(findings),
        judged=judged,
    )


def finding(severity: str, name: str = "slot-retention", **more: Any) -> Finding:
    text = f"{name} is wrong"
    return Finding(id=name, severity=severity, subject="", text=text, since="2026-11-20T14:55:02Z", **more)


def verdict(seen: Frame) -> Verdict:
    return judge(seen, ConnectionLimits())


@pytest.mark.parametrize(("severity", "code"), [("info", 0), ("warning", 1), ("critical", 2)])
def test_the_severity_of_a_finding_is_the_exit_code(severity: str, code: int) -> None:
    assert verdict(frame(finding(severity))).code == code


def test_the_worst_finding_is_the_line_and_the_others_stand_below() -> None:
    seen = verdict(frame(finding("warning", "io-slow"), finding("critical", "checksum-failure")))
    assert seen.code == 2
    assert seen.text.startswith("critical: checksum-failure is wrong; since ")
    assert any("io-slow is wrong" in line for line in seen.more)


def test_the_line_names_the_finding_and_its_runbook() -> None:
    assert (
        "[slot-retention, runbook slot-retention]" in verdict(frame(finding("warning", runbook="slot-retention"))).text
    )


def test_a_silenced_finding_is_told_and_does_not_alarm() -> None:
    seen = verdict(frame(finding("critical", state="silenced", who="ann", until="2026-11-20T16:00:00Z")))
    assert seen.code == 0
    assert seen.text.startswith("nothing but 1 silenced")
    assert "by ann" in seen.more[0]


def test_an_acknowledged_finding_still_alarms_and_says_who_knows() -> None:
    seen = verdict(frame(finding("critical", state="acknowledged", who="ann")))
    assert seen.code == 2
    assert "(acknowledged by ann)" in seen.text


def test_no_finding_is_well_only_where_the_rules_were_asked() -> None:
    assert verdict(frame()).code == 0
    assert verdict(frame(judged=False)).code == 3


def test_rules_that_failed_are_unknown_and_not_well() -> None:
    seen = frame()
    seen.findings_note = "not all rules could be asked: io-slow: ZeroDivisionError"
    assert verdict(seen).code == 3


def test_connections_that_are_not_known_are_unknown_and_not_well() -> None:
    seen = frame()
    seen.connections = Connections(status="denied", note="GRANT pg_monitor to this role")
    assert verdict(seen).code == 3


def test_no_connection_is_critical_with_the_reason_even_before_a_rule_says_so() -> None:
    seen = verdict(frame(state="disconnected", note="connection refused"))
    assert (seen.code, seen.text) == (2, "not connected: connection refused")


def test_performance_data_counts_connections_and_findings() -> None:
    seen = verdict(frame(finding("warning"), finding("critical", state="silenced")))
    assert seen.performance == "connections=50;85;95;0;100 used_pct=50.0%;85;95;0;100 critical=0 warning=1"


def test_performance_data_has_no_limits_where_the_whole_is_not_known() -> None:
    seen = frame(state="blind", note="x")
    seen.connections = Connections(used=5)
    assert verdict(seen).performance.startswith("connections=5;;;0 ")


def test_the_line_tells_what_makes_the_exit_code_and_no_lesser_one_that_nobody_acknowledged() -> None:
    known = finding("critical", "checksum-failure", state="acknowledged", who="ann")
    seen = verdict(frame(finding("info", "discard-mount"), finding("warning", "io-slow"), known))
    assert seen.code == 2
    assert seen.text.startswith("critical: checksum-failure is wrong; since ")
    assert [line.partition(":")[0] for line in seen.more[:2]] == ["warning", "info"]
