"""What the console said in a quiet hour is counted once, at its worst, and laid beside what was going on."""

from __future__ import annotations

from bench.quiet_load.diary import INCIDENT, Spell
from bench.quiet_load.verdict import STANDING, by_rule, count, findings_of, report, split_incidents
from dba_console.watch.findings.finding_events import FindingChange, Kind, change_event
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow, Severity


def event(kind: Kind, at_s: float, rule: str, severity: Severity = "warning", subject: str = "") -> Event:
    name = f"{rule}:{subject}" if subject else rule
    at_us = int(at_s * 1e6)
    row = FindingNow(name, rule, severity, subject, f"{name} is {severity}", {}, at_us, at_us, [name], [])
    return change_event(FindingChange(kind, row, row if kind == "joined" else None), at_us, at_us)


def test_a_finding_that_gets_worse_counts_once_with_its_worst_severity() -> None:
    (found,) = findings_of([event("raised", 1, "io-stalled"), event("changed", 2, "io-stalled", "critical")])
    assert (found.severity, found.text) == ("critical", "io-stalled is critical")


def test_a_finding_that_improves_keeps_its_worst_severity() -> None:
    (found,) = findings_of([event("raised", 1, "io-stalled", "critical"), event("changed", 2, "io-stalled")])
    assert found.severity == "critical"


def test_a_finding_raised_again_counts_again() -> None:
    reported = [event("raised", 1, "io-slow"), event("cleared", 3, "io-slow"), event("raised", 9, "io-slow")]
    found = findings_of(reported)
    assert [(row.raised_us, row.ended_us) for row in found] == [(1_000_000, 3_000_000), (9_000_000, None)]
    assert by_rule(count(found, "warning")) == "io-slow 2"


def test_a_finding_grouped_into_another_has_ended_there() -> None:
    (found,) = findings_of([event("raised", 1, "io-stalled"), event("joined", 4, "io-stalled")])
    assert found.ended_us == 4_000_000


def test_operator_entries_are_not_findings() -> None:
    assert findings_of([event("silenced", 1, "io-slow"), event("unsilenced", 2, "io-slow")]) == []


def test_subjects_of_a_rule_are_counted_under_its_name() -> None:
    found = findings_of([event("raised", 1, "slot-retention", "info", name) for name in ("a", "b")])
    assert count(found, "info") == {"slot-retention": 2}
    assert count(found, "warning") == {}


def test_the_report_shows_when_how_long_and_during_which_activity() -> None:
    found = findings_of([event("raised", 75, "io-slow"), event("cleared", 95, "io-slow")])
    text = report(found, [Spell("build", 70_000_000, None)], start_us=0)
    assert "critical: 0\nwarning: 1 (io-slow 1)\n  +1:15  io-slow  20s\n" in text
    assert "io-slow is warning" in text
    assert "while: build" in text


def test_findings_during_a_real_problem_are_distinguished() -> None:
    found = findings_of([event("raised", 10, "io-stalled", "critical"), event("raised", 90, "io-slow")])
    spells = [Spell(f"{INCIDENT}reclaim-stall rehearsed", 8_000_000, 30_000_000)]
    quiet, wrong = split_incidents(found, spells)
    assert ([row.rule for row in quiet], [row.rule for row in wrong]) == (["io-slow"], ["io-stalled"])
    text = report(found, spells, start_us=0)
    assert text.startswith("critical: 0\n")
    assert "during a real incident: 1 (io-stalled 1)" in text


def test_the_configuration_of_the_host_is_not_caused_by_an_incident() -> None:
    found = findings_of([event("raised", 10, rule) for rule in STANDING])
    quiet, wrong = split_incidents(found, [Spell(f"{INCIDENT}reclaim-stall rehearsed", 8_000_000, 30_000_000)])
    assert ([row.rule for row in quiet], wrong) == (list(STANDING), [])
