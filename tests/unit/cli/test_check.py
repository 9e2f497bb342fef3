"""The verdict of `check` on frames made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dba_console.cli.check import STATUS_WORDS, Verdict, make_verdict, plain_text, rules_not_judged
from dba_console.watch.connections.panel import ConnectionsPanel
from dba_console.watch.connections.slot_usage import ConnectionLimits
from dba_console.watch.frames.model import Finding, Frame, TargetFrame


def frame(*findings: Finding, state: str = "connected", note: str | None = None, judged: bool = True) -> Frame:
    return Frame(
        target=TargetFrame(state=state, note=note),
        panels={"connections": ConnectionsPanel(used=50, usable=100, used_pct=50.0)},
        findings=list(findings),
        judged=judged,
    )


def finding(severity: str, name: str = "slot-retention", **more: Any) -> Finding:
    text = f"{name} is wrong"
    return Finding(id=name, severity=severity, subject="", text=text, since="2026-11-20T14:55:02Z", **more)


def verdict(frame_read: Frame) -> Verdict:
    return make_verdict(frame_read, ConnectionLimits())


@pytest.mark.parametrize(("severity", "code"), [("info", 0), ("warning", 1), ("critical", 2)])
def test_the_severity_of_a_finding_is_the_exit_code(severity: str, code: int) -> None:
    assert verdict(frame(finding(severity))).code == code


def test_the_worst_finding_is_the_first_line_and_the_others_are_below() -> None:
    frame_read = verdict(frame(finding("warning", "io-slow"), finding("critical", "checksum-failure")))
    assert frame_read.code == 2
    assert frame_read.text.startswith("critical: checksum-failure is wrong; since ")
    assert any("io-slow is wrong" in line for line in frame_read.further_lines)


def test_the_line_names_the_finding_and_its_runbook() -> None:
    assert (
        "[slot-retention, runbook slot-retention]" in verdict(frame(finding("warning", runbook="slot-retention"))).text
    )


def test_a_silenced_finding_is_reported_and_does_not_alarm() -> None:
    frame_read = verdict(frame(finding("critical", state="silenced", who="ann", until="2026-11-20T16:00:00Z")))
    assert frame_read.code == 0
    assert frame_read.text.startswith("only 1 silenced")
    assert "by ann" in frame_read.further_lines[0]


def test_an_acknowledged_finding_still_alarms_and_names_the_operator() -> None:
    frame_read = verdict(frame(finding("critical", state="acknowledged", who="ann")))
    assert frame_read.code == 2
    assert "(acknowledged by ann)" in frame_read.text


def test_no_finding_is_ok_only_if_the_rules_were_evaluated() -> None:
    assert verdict(frame()).code == 0
    assert verdict(frame(judged=False)).code == 3


def test_failed_rules_are_unknown_and_not_ok() -> None:
    frame_read = frame()
    frame_read.findings_note = "some rules could not be evaluated: io-slow: ZeroDivisionError"
    assert verdict(frame_read).code == 3


def test_unknown_connections_are_unknown_and_not_ok() -> None:
    frame_read = frame()
    frame_read.panels["connections"] = ConnectionsPanel(status="denied", note="GRANT pg_monitor to this role")
    assert verdict(frame_read).code == 3


def test_no_connection_is_critical_with_the_reason_even_before_a_rule_reports_it() -> None:
    frame_read = verdict(frame(state="disconnected", note="connection refused"))
    assert (frame_read.code, frame_read.text) == (2, "critical: not connected: connection refused [not-connected]")
    assert frame_read.performance.endswith("critical=1 warning=0")


def test_an_outage_below_critical_is_critical_for_a_monitoring_system() -> None:
    down = finding("warning", "server-down", evidence={"outage": "refused"})
    frame_read = verdict(frame(down, state="disconnected", note="connection refused"))
    assert (frame_read.code, frame_read.performance.split()[-2:]) == (2, ["critical=1", "warning=0"])
    assert frame_read.text.startswith("critical: server-down is wrong; since ")


def test_a_server_that_rejects_only_the_console_is_always_a_warning() -> None:
    down = finding("warning", "server-down", evidence={"outage": "auth"})
    frame_read = verdict(frame(down, state="disconnected", note='role "nobody" does not exist'))
    assert (frame_read.code, frame_read.performance.split()[-2:]) == (1, ["critical=0", "warning=1"])


def test_a_silenced_outage_raises_no_alarm_and_is_not_ok_either() -> None:
    down = finding("critical", "server-down", state="silenced", who="ann", evidence={"outage": "refused"})
    frame_read = verdict(frame(down, state="disconnected", note="connection refused"))
    assert (frame_read.code, frame_read.text) == (3, "not connected: connection refused")


def test_a_signal_not_observed_long_enough_is_unknown_and_named() -> None:
    frame_read = frame()
    frame_read.judged_s, frame_read.pending = 3.0, {"replication-lag": 6.0}
    assert verdict(frame_read).code == 3
    assert "replication-lag must last 6.0s" in verdict(frame_read).text


def test_a_signal_an_agent_has_seen_only_briefly_is_decided_later() -> None:
    frame_read = frame()
    frame_read.judged_s, frame_read.pending = 3600.0, {"wal-receiver-down": 30.0}
    assert verdict(frame_read).code == 0


def test_rules_with_a_longer_warm_up_are_named_on_the_first_line() -> None:
    frame_read = frame()
    frame_read.judged_s = 3.0
    names = rules_not_judged(frame_read, ["io-slow"])
    assert {"standby-gone", "io-stalled"} <= set(names) and "io-slow" not in names
    line = make_verdict(frame_read, ConnectionLimits(), names).text
    assert line.startswith("no finding, 50 of 100") and "not evaluated in 3.0s: autovacuum-behind, " in line
    frame_read.judged_s = 3600.0
    assert rules_not_judged(frame_read, []) == []


OUTAGES = st.sampled_from([{}, {"outage": "refused"}, {"outage": "auth"}, {"outage": "no_slots", "refused_by": "role"}])
FINDINGS = st.builds(
    finding,
    severity=st.sampled_from(["info", "warning", "critical"]),
    name=st.sampled_from(["server-down", "console-blind", "io-slow", "slot-retention:a|b", "checksum-failure"]),
    state=st.sampled_from(["open", "acknowledged", "silenced"]),
    who=st.just("ann"),
    evidence=OUTAGES,
)


@given(
    findings=st.lists(FINDINGS, max_size=5, unique_by=lambda one: one.id),
    state=st.sampled_from(["connected", "blind", "disconnected"]),
    judged=st.booleans(),
    used=st.sampled_from([None, 5]),
    usable=st.sampled_from([None, 100]),
    judged_s=st.sampled_from([None, 3.0, 900.0]),
)
def test_word_exit_code_lines_and_performance_data_always_agree(
    findings: list[Finding], state: str, judged: bool, used: int | None, usable: int | None, judged_s: float | None
) -> None:
    frame_read = frame(*findings, state=state, note="connection refused", judged=judged)
    share = None if used is None or usable is None else 5.0
    frame_read.panels["connections"] = ConnectionsPanel(used=used, usable=usable, used_pct=share)
    frame_read.judged_s, frame_read.pending = judged_s, {"replication-lag": 6.0} if judged else {}
    made = make_verdict(frame_read, ConnectionLimits(), rules_not_judged(frame_read, []))
    text = plain_text(made)
    word, code = text.split(" - ")[0], made.code
    counts = {name: int(text.splitlines()[0].split(f"{name}=")[1].split()[0]) for name in ("critical", "warning")}
    assert word == f"DBACONSOLE {STATUS_WORDS[code]}"
    assert (code == 2, code == 1) == (counts["critical"] > 0, counts["critical"] == 0 and counts["warning"] > 0)
    lines = [line.removeprefix(f"{word} - ") for line in text.splitlines()]
    for severity, count in counts.items():
        reported = [line for line in lines if line.startswith(f"{severity}: ")]
        assert len([line for line in reported if "(silenced " not in line]) == count
    assert not (code == 0 and state != "connected")
    assert "of ?" not in text and "(?)" not in text


def test_performance_data_counts_connections_and_findings() -> None:
    frame_read = verdict(frame(finding("warning"), finding("critical", state="silenced")))
    assert frame_read.performance == "connections=50;85;95;0;100 used_pct=50.0%;85;95;0;100 critical=0 warning=1"


def test_performance_data_has_no_limits_if_the_total_is_unknown() -> None:
    frame_read = frame(state="blind", note="x")
    frame_read.panels["connections"] = ConnectionsPanel(used=5)
    assert verdict(frame_read).performance.startswith("connections=5;;;0 ")


def test_the_line_shows_the_cause_of_the_exit_code_and_no_less_severe_unacknowledged_one() -> None:
    known = finding("critical", "checksum-failure", state="acknowledged", who="ann")
    frame_read = verdict(frame(finding("info", "discard-mount"), finding("warning", "io-slow"), known))
    assert frame_read.code == 2
    assert frame_read.text.startswith("critical: checksum-failure is wrong; since ")
    assert [line.partition(":")[0] for line in frame_read.further_lines[:2]] == ["warning", "info"]
