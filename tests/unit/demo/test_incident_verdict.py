"""The verdict on an incident reads the events of the recording: which finding came, when, and what else."""

from __future__ import annotations

from dba_console.demo.incident_detection import finding_text, judge
from dba_console.demo.incidents.incident import Incident
from dba_console.watch.findings.finding_events import FindingChange, Kind, change_event
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.findings import FindingNow

BEGAN_S = 1_000_000_000
CAUSED_S = BEGAN_S + 2_000_000


class PracticeIncident(Incident):
    name = "practice"
    finding = "lock-queue"


def event(after_s: float, rule: str, *chain: str, severity: str = "critical", kind: str = "finding.raised") -> Event:
    """A finding's event, so many seconds after the cause was there."""
    details = {"id": rule, "name": rule, "severity": severity, "chain": list(chain) or [rule]}
    return Event(wall_us=CAUSED_S + int(after_s * 1e6), kind=kind, text=f"finding raised: {rule}", details=details)


def test_a_finding_in_time_is_reported_with_its_second() -> None:
    verdict = judge([event(1.5, "lock-queue")], PracticeIncident(), BEGAN_S, CAUSED_S)
    assert verdict.in_time
    assert verdict.after_s == 1.5
    assert "3.5 s after the incident began" in verdict.sentence()


def test_a_late_finding_is_reported_as_late() -> None:
    verdict = judge([event(5.5, "lock-queue")], PracticeIncident(), BEGAN_S, CAUSED_S)
    assert not verdict.in_time
    assert "later than 5 s" in verdict.sentence()


def test_a_finding_while_the_cause_is_still_developing_is_in_time() -> None:
    assert judge([event(-1.0, "lock-queue")], PracticeIncident(), BEGAN_S, CAUSED_S).in_time


def test_a_finding_in_a_group_counts_as_named() -> None:
    verdict = judge(
        [event(1.0, "dump-blocks", "connections-filling", "lock-queue:17", "dump-blocks")],
        PracticeIncident(),
        BEGAN_S,
        CAUSED_S,
    )
    assert verdict.in_time
    assert verdict.others == ()


def test_a_finding_raised_before_the_incident_is_not_one_of_its_findings() -> None:
    verdict = judge([event(-2.5, "lock-queue")], PracticeIncident(), BEGAN_S, CAUSED_S)
    assert verdict.detected is None
    assert verdict.sentence() == "lock-queue was not raised"


def test_another_critical_finding_is_reported_once() -> None:
    events = [
        event(1.0, "lock-queue"), event(2.0, "server-down"), event(3.0, "server-down", kind="finding.changed"),
        event(3.0, "horizon-held", severity="warning"),
    ]  # fmt: skip
    verdict = judge(events, PracticeIncident(), BEGAN_S, CAUSED_S)
    assert [other.wall_us for other in verdict.others] == [CAUSED_S + 2_000_000]


def test_a_warning_that_becomes_critical_counts_as_critical() -> None:
    events = [
        event(1.0, "lock-queue"),
        event(1.0, "io-slow", severity="warning"),
        event(4.0, "io-slow", kind="finding.changed"),
    ]
    assert len(judge(events, PracticeIncident(), BEGAN_S, CAUSED_S).others) == 1


def test_a_critical_finding_that_becomes_part_of_the_incident_is_not_another_one() -> None:
    events = [event(1.0, "dump-blocks"), event(2.0, "dump-blocks", "lock-queue", "dump-blocks", kind="finding.changed")]
    assert judge(events, PracticeIncident(), BEGAN_S, CAUSED_S).others == ()


def test_a_critical_finding_grouped_into_that_of_the_incident_is_not_another_one() -> None:
    events = [
        event(1.0, "connections-filling"), event(2.0, "lock-queue", "connections-filling", "lock-queue"),
        event(2.0, "connections-filling", kind="finding.joined"),
    ]  # fmt: skip
    assert judge(events, PracticeIncident(), BEGAN_S, CAUSED_S).others == ()


def test_a_sentence_is_printed_without_the_word_raised() -> None:
    assert finding_text(event(1.0, "lock-queue")) == "lock-queue"


def test_a_finding_that_became_part_of_another_is_not_printed_next_to_it() -> None:
    events = [
        event(1.0, "lock-blocker"), event(2.0, "lock-queue"), event(2.0, "lock-blocker", kind="finding.joined"),
    ]  # fmt: skip
    assert [one.details["id"] for one in judge(events, PracticeIncident(), BEGAN_S, CAUSED_S).findings] == [
        "lock-queue"
    ]


def test_the_sentence_of_a_finding_is_printed_without_the_event_text() -> None:
    row = FindingNow("lock-queue", "lock-queue", "critical", "", "20 sessions wait: a, b", {}, 1, 1, ["lock-queue"], [])
    kinds: tuple[Kind, ...] = ("raised", "changed")
    for kind in kinds:
        assert finding_text(change_event(FindingChange(kind, row), 2, 2)) == "20 sessions wait: a, b"
