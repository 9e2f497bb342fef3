"""What a postmortem is about when nothing is asked for, and its main times: from one finding and its chain only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dba_console.recording.plan import JournalRecord, Plan
from dba_console.recording.run_journal import RunJournal
from dba_console.recording.run_paths import run_directory
from dba_console.recording.run_records import RunAbout
from dba_console.reports.postmortem.facts import IncidentFacts, IncidentTime
from dba_console.reports.postmortem.gather import Asked
from dba_console.watch.samples.event import Event
from tests.clocks import HeldClock
from tests.unit.recording.run_journals import PATIENT_S, PLAN
from tests.unit.reports.incidents import EVENTS, at, event, facts_of, finding_event, record_incident

EVERY_FIVE = range(0, 480, 5)
DOWN_S, UP_S = 200, 236


def moments(incident: IncidentFacts) -> dict[str, IncidentTime]:
    return {one.name: one for one in incident.moments}


def known(incident: IncidentFacts) -> dict[str, int | None]:
    return {name: one.at_us for name, one in moments(incident).items()}


def finding(
    ident: str, severity: str, from_s: float, raised_s: float, to_s: float | None, **details: Any
) -> list[Event]:
    """The events of one finding, from raised to cleared."""
    details = {"since_us": at(from_s), "chain": [ident], "runbook": "", **details}
    made = [finding_event(raised_s, "raised", ident, severity=severity, details=details)]
    return made + ([finding_event(to_s, "cleared", ident, severity=severity, details=details)] if to_s else [])


def server_down(from_s: float = DOWN_S, to_s: float = UP_S) -> list[Event]:
    return finding("server-down", "critical", from_s, from_s + 4, to_s)


def record(place: Path, *findings: Sequence[Event]) -> Path:
    events = sorted((one for found in findings for one in found), key=lambda one: one.wall_us)
    return record_incident(place, events, seconds=EVERY_FIVE)


def put_run(
    session: Path, runbook: str, *records: tuple[float, JournalRecord], answers: tuple[str, ...] = (), who: str = "bob"
) -> str:
    """Write the journal of a run into a session; each record at its second. Return the run's id."""
    run, clock = f"20261120T145307Z-{runbook}-1a2b", HeldClock()
    clock.wall = at(records[0][0])
    plan = Plan(id=runbook, title=runbook, answers=answers, steps=PLAN.steps)
    about = RunAbout(run=run, runbook=runbook, title=runbook, who=who)
    journal = RunJournal.create(
        run_directory(session, run), about, text="# x\n", plan=plan, secrets=(), clock=clock, deadline_s=PATIENT_S
    )
    for second, one in records:
        clock.wall = at(second)
        journal.append(one)
    journal.close()
    return run


PLANNED = JournalRecord(kind="run.planned", text="planned", fields={"inputs": {}})
STARTED = JournalRecord(kind="run.started", text="started by bob", who="bob")
CHANGED = JournalRecord(
    kind="block.result", text="ok", step="drop-it", block="drop-it/action", execution=1, state="ok",
    fields={"note": "ok", "values": {}},
)  # fmt: skip
INTENT = JournalRecord(kind="block.intent", text="intent", step="drop-it", block="drop-it/action", execution=1)


def test_the_times_are_those_of_the_most_severe_finding_not_of_others_before_it(tmp_path: Path) -> None:
    left = finding("settings-left", "warning", 10, 25, 400)
    lags = finding("recording-lags", "warning", 150, 160, 240)
    incident = facts_of(record(tmp_path, left, lags, server_down()))
    assert known(incident) == {
        "began": at(DOWN_S), "detected": at(DOWN_S + 4), "acknowledged": None, "cleared": at(UP_S), "ended": at(UP_S),
    }  # fmt: skip
    assert all("server-down" in one.how or name == "acknowledged" for name, one in moments(incident).items())
    assert "server-down, the only critical finding of 3" in incident.chosen
    assert any("server-down, the only critical finding of 3" in one for one in incident.summary)
    assert [one.id for one in incident.causes] == ["server-down"]
    assert {one.id for one in incident.others} == {"settings-left", "recording-lags"}


def test_what_an_unrelated_run_measured_is_not_the_impact_of_the_incident(tmp_path: Path) -> None:
    """A cutover minutes before the failover has a write outage of its own."""
    session = record(tmp_path, server_down())
    measured = JournalRecord(
        kind="block.result", text="ok", step="drop-it", block="drop-it/action", execution=1, state="ok",
        fields={"note": "ok", "values": {"write_outage_s": 1.9}},
    )  # fmt: skip
    runs = (("cutover", 150, ()), ("failover", 206, ("server-down",)))
    for runbook, second, answers in runs:
        put_run(
            session, runbook, (second, PLANNED), (second + 1, STARTED), (second + 2, INTENT), (second + 5, measured),
            answers=answers,
        )  # fmt: skip
    incident = facts_of(session)
    assert [(one.value, one.source) for one in incident.impact if one.name == "Write outage"] == [
        ("1.9s", "ok (run 20261120T145307Z-failover-1a2b)")
    ]
    assert [one.runbook for one in incident.runs if one.related] == ["failover"]


def test_gaps_one_after_the_other_are_one_line(tmp_path: Path) -> None:
    made = record_incident(tmp_path, EVENTS, seconds=[second for second in range(480) if second % 20 < 12])
    [gaps] = [row for row in facts_of(made).timeline if row.source == "gaps of the session"]
    assert re.search(r"^no samples for \d+ s in 2\d gaps \(\d+ missing\): ", gaps.text), gaps


def test_a_run_begun_before_or_about_something_else_is_neither_acknowledgement_nor_mitigation(tmp_path: Path) -> None:
    session = record(tmp_path, server_down())
    put_run(session, "dump", (60, PLANNED), (61, STARTED), (210, INTENT), (220, CHANGED))
    put_run(session, "vacuum", (205, PLANNED), (206, STARTED), (210, INTENT), (220, CHANGED))
    incident = facts_of(session)
    assert known(incident)["acknowledged"] is None and "change before it" not in moments(incident)["cleared"].how
    assert not any(one.related for one in incident.runs) and len(incident.runs) == 2


@pytest.mark.parametrize("how", ["by its rule", "by the finding's runbook", "by its subject"])
def test_a_run_that_answers_the_finding_is_its_acknowledgement(tmp_path: Path, how: str) -> None:
    book = "help" if how == "by the finding's runbook" else ""
    held = finding("slot-retention:s1", "critical", 200, 204, 300, runbook=book, name="slot-retention")
    session = record(tmp_path, held)
    answers = ("slot-retention",) if how == "by its rule" else ()
    intent = INTENT
    if how == "by its subject":
        intent = JournalRecord(
            kind="block.intent", text="drops s1", step="drop-it", block="drop-it/action", execution=1,
            fields={"statement": "select pg_drop_replication_slot('s1')"}, who="bob",
        )  # fmt: skip
    put_run(session, "help", (210, PLANNED), (211, STARTED), (250, intent), (260, CHANGED), answers=answers)
    incident = facts_of(session)
    assert known(incident)["acknowledged"] == at(250 if how == "by its subject" else 211)
    assert "help" in moments(incident)["acknowledged"].how
    assert "; change before it: drop-it/action of run" in moments(incident)["cleared"].how
    assert [one.related for one in incident.runs] == [True]


def test_an_acknowledgement_of_another_finding_or_a_note_after_the_end_does_not_count(tmp_path: Path) -> None:
    other = [
        *finding("disk-filling", "warning", 205, 206, 300),
        finding_event(210, "acknowledged", "disk-filling", who="eve", severity="warning"),
    ]
    late = [event(300, "note", "what was that?", who="eve")]
    incident = facts_of(record(tmp_path, server_down(), other, late))
    assert known(incident)["acknowledged"] is None
    assert "no acknowledgement, note or run about it" in moments(incident)["acknowledged"].how


def test_of_two_incidents_the_longer_is_reported_and_the_other_named(tmp_path: Path) -> None:
    lasting = finding("checksum-failure", "critical", -900, 1, None)
    session = record(tmp_path, server_down(100, 120), server_down(), lasting, EVENTS)
    incident = facts_of(session)
    assert known(incident)["began"] == at(DOWN_S) and known(incident)["ended"] == at(UP_S)
    assert (
        "of 4 critical findings, 2 of which report an outage, the one that was open the longest: 36s" in incident.chosen
    )
    assert sorted(one.id for one in incident.others) == ["checksum-failure", "connections-filling", "server-down"]
    first = facts_of(session, Asked(finding="server-down", at_us=at(110)))
    assert (known(first)["began"], known(first)["cleared"]) == (at(100), at(120))


def test_an_outage_comes_before_a_longer_finding_of_its_severity(tmp_path: Path) -> None:
    short = finding("server-down", "warning", 100, 103, 108)
    longer = finding("lock-queue", "warning", 50, 51, 400)
    incident = facts_of(record(tmp_path, short, longer))
    assert (
        known(incident)["began"] == at(100) and "of 2 warnings the only one that reports an outage" in incident.chosen
    )


def test_a_chain_is_one_incident_until_its_last_critical_part_is_cleared(tmp_path: Path) -> None:
    """An effect raised alone becomes part of its cause, which lasts longer; a warning of the chain lasts longest."""
    effect = [
        *finding("connections-filling", "critical", 100, 103, None),
        finding_event(150, "joined", "connections-filling", details={"since_us": at(100)}),
    ]
    cause = finding(
        "io-stalled", "critical", 98, 150, 300, chain=["connections-filling", "io-stalled"], also=["io-slow"]
    )
    slow = finding("io-slow", "warning", 99, 305, 350)
    before = finding("io-slow", "warning", 10, 20, 40)
    incident = facts_of(record(tmp_path, effect, cause, slow, before))
    assert known(incident)["began"] == at(98) and known(incident)["detected"] == at(103)
    assert known(incident)["cleared"] == at(300) and "io-stalled" in moments(incident)["cleared"].how
    assert known(incident)["ended"] == at(350)
    assert [one.raised_us for one in incident.others] == [at(20)], "it was over before the incident began"


def test_a_session_without_anything_above_info_has_no_incident(tmp_path: Path) -> None:
    incident = facts_of(record(tmp_path, finding("discard-mount:/", "info", 1, 2, None)))
    assert all(one.at_us is None for one in incident.moments) and "no finding above info" in incident.summary[0]
    assert [one.id for one in incident.others] == ["discard-mount:/"]
