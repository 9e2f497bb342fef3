"""What happens to a finding is an event of the session."""

from __future__ import annotations

from msgspec import structs

from dba_console.watch.findings.finding_events import FindingChange, change_event
from dba_console.watch.samples.findings import FindingNow

ROW = FindingNow(
    "slot-retention:old", "slot-retention", "warning", "old", "slot old retains 12 GB", {"retained_bytes": 12 << 30},
    1_000_000, 61_000_000, ["slot-retention:old"], ["slot:old.retained_bytes"], "slot-retention",
)  # fmt: skip


def test_a_raised_finding_is_reported_with_its_sentence_severity_and_evidence() -> None:
    event = change_event(FindingChange("raised", ROW), 61_000_000, 5)
    assert (event.kind, event.severity) == ("finding.raised", "warning")
    assert event.text == "finding raised, warning: slot old retains 12 GB"
    assert event.details["id"] == "slot-retention:old"
    assert event.details["name"] == "slot-retention"
    assert event.details["evidence"] == {"retained_bytes": 12 << 30}
    assert event.details["since_us"] == 1_000_000


def test_a_cleared_finding_shows_its_duration_and_is_not_urgent() -> None:
    event = change_event(FindingChange("cleared", ROW), 91_000_000, 5)
    assert event.severity == "info"
    assert event.text == "finding cleared after 1m30s: slot-retention:old"


def test_a_clock_set_back_leaves_no_duration_to_report() -> None:
    assert change_event(FindingChange("cleared", ROW), 0, 5).text == "finding cleared: slot-retention:old"


def test_a_silenced_finding_is_remembered_and_is_not_urgent() -> None:
    silenced = structs.replace(ROW, state="silenced", who="ann", until_us=121_000_000)
    assert change_event(FindingChange("raised", silenced), 61_000_000, 5).severity == "info"
    message = change_event(FindingChange("silenced", silenced), 61_000_000, 5)
    assert message.text == "finding silenced for 1m by ann: slot-retention:old"
    assert message.who == "ann"


def test_an_acknowledgement_is_reported_with_operator_and_reason() -> None:
    known = structs.replace(ROW, state="acknowledged", who="ann", note="replica is being rebuilt")
    event = change_event(FindingChange("acknowledged", known), 61_000_000, 5)
    assert event.text == "finding acknowledged by ann: slot-retention:old: replica is being rebuilt"


def test_a_grouped_finding_names_its_group() -> None:
    into = structs.replace(ROW, id="disk-filling:/pg")
    assert (
        change_event(FindingChange("joined", ROW, into), 0, 0).text
        == "finding slot-retention:old is now part of disk-filling:/pg"
    )
