"""The facts of a postmortem: times and how each is known, impact, timeline, what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.recording.layout import DATABASE, SAMPLES
from dba_console.reports.postmortem.evidence_charts import BUCKETS
from dba_console.reports.postmortem.facts import IncidentFacts, IncidentTime
from dba_console.reports.postmortem.gather import Asked
from dba_console.reports.postmortem.render import render
from dba_console.reports.postmortem.timeline import MAX_ROWS
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples.console import AgentHealth
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.postgres import Locks, LockWaiter
from dba_console.watch.samples.sample import Sample, make_part
from tests.readings import activity, of, server, sessions
from tests.unit.recording.recordings import meta
from tests.unit.reports.incidents import (
    BEGAN_S,
    CLEARED_S,
    END_S,
    EVENTS,
    FINDING,
    RAISED_S,
    SECOND,
    SHIPPED,
    at,
    event,
    facts_of,
    finding_event,
    record_incident,
    tick,
    unclean,
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_incident(tmp_path_factory.mktemp("sessions"))


def moments(incident: IncidentFacts) -> dict[str, IncidentTime]:
    return {one.name: one for one in incident.moments}


def values(incident: IncidentFacts) -> dict[str, str | None]:
    return {one.name: one.value for one in incident.impact}


def test_each_time_of_an_incident_says_how_it_is_known(session: Path) -> None:
    incident = facts_of(session)
    known = {name: (one.at_us, one.after_s) for name, one in moments(incident).items()}
    assert known == {
        "began": (at(BEGAN_S), 0.0),
        "detected": (at(RAISED_S), 3.0),
        "acknowledged": (at(330), 30.0),
        "cleared": (at(CLEARED_S), 120.0),
        "ended": (at(CLEARED_S), 120.0),
    }
    assert "acknowledged by alice" in moments(incident)["acknowledged"].how
    assert (incident.from_us, incident.to_us) == (at(0), at(END_S) - 0) or incident.from_us == at(0)


def test_the_impact_is_computed_from_the_samples(session: Path) -> None:
    found = values(facts_of(session))
    assert found["Most connections"] == "20 of 20 usable by ordinary roles"
    assert found["All ordinary connection slots in use"] == "2m of 2m01s"
    assert found["Refused connections"] is None
    # 100 a second before, 50 during: 6,000 in two minutes are missing.
    assert found["Transactions below the typical rate"] == "6000 (50 % of those expected)"
    assert found["All tasks stalled on I/O"] == "30s of 2m01s"
    assert found["Most sessions waiting for locks"] == "20"
    assert all(one.source for one in facts_of(session).impact)


def test_refused_connections_and_ended_sessions_are_counted_where_something_counts_them(tmp_path: Path) -> None:
    def refused(second: int) -> Sample:
        during = max(0, min(second, CLEARED_S) - BEGAN_S)
        killed = 7 if second < 330 else 0  # the statistics were reset
        row = of(
            DatabaseStat, oid=1, xact_commit=100 * second, sessions_abandoned=9, sessions_fatal=4 + during // 30,
            sessions_killed=killed,
        )  # fmt: skip
        own = of(AgentHealth, recording="ok", slot_refusals=2 + during // 60)
        return with_readings(second, self=own, pg_databases=None if second % 3 else DatabaseStats([row]))

    incident = facts_of(record_incident(tmp_path, make=refused, seconds=range(200, END_S)))
    assert values(incident)["Refused connections"] == "at least 2"
    assert values(incident)["Sessions that did not end normally"] == "4 ended by a fatal error"
    sources = {one.name: one.source for one in incident.impact}
    assert "attempts of the console itself" in sources["Refused connections"]
    assert "pg_stat_database" in sources["Sessions that did not end normally"]


def test_what_no_view_counts_is_not_known(session: Path) -> None:
    found = {one.name: one for one in facts_of(session).impact}
    refused, ended = found["Refused connections"], found["Sessions that did not end normally"]
    assert (refused.value, ended.value) == (None, None)
    assert "the server's log does" in refused.source and "PostgreSQL 14" in ended.source


def test_without_a_full_server_refused_connections_are_not_mentioned(tmp_path: Path) -> None:
    def calm(second: int) -> Sample:
        return with_readings(second, pg_activity=sessions(activity(1, "active"), now_us=at(second)))

    assert "Refused connections" not in values(facts_of(record_incident(tmp_path, make=calm, seconds=range(290, 430))))


def test_a_time_that_the_recording_does_not_show_is_a_question(tmp_path: Path) -> None:
    incident = facts_of(record_incident(tmp_path, EVENTS[:1], seconds=range(0, 360, 3)))
    assert {name for name, one in moments(incident).items() if one.at_us is None} == {
        "acknowledged", "cleared", "ended",
    }  # fmt: skip
    assert any(question.startswith("When was it ended?") for question in incident.questions)
    assert "not known" in " ".join(incident.summary)


def test_a_mark_before_the_detection_is_not_an_acknowledgement(tmp_path: Path) -> None:
    early, late = event(301, "mark", "slow?", who="bob"), event(310, "note", "looking", who="bob")
    incident = facts_of(record_incident(tmp_path, (early, *EVENTS[:1], late, EVENTS[2]), seconds=range(290, 430, 5)))
    assert moments(incident)["acknowledged"].at_us == at(310)


def test_a_note_has_the_time_it_is_about_and_the_time_it_was_recorded(tmp_path: Path) -> None:
    note = event(450, "note", "the release was at this time", who="bob", occurred_us=at(280))
    late = event(455, "note", "it had begun", who="bob", occurred_us=at(305))
    incident = facts_of(record_incident(tmp_path, (*EVENTS, note, late), seconds=range(270, 470, 5)))
    row, _ = (row for row in incident.timeline if row.kind == "note")
    assert (row.at_us, row.recorded_us, row.who) == (at(280), at(450), "bob")
    # Neither was known then, nor on the screen.
    assert moments(incident)["acknowledged"].at_us == at(330)
    assert not any("it had begun" in line for one in incident.decisions for line in one.screen)
    assert incident.timeline.index(row) < [row.kind for row in incident.timeline].index("finding.raised")


def test_the_last_episode_of_a_named_finding_is_chosen(tmp_path: Path) -> None:
    first = (finding_event(100, "raised", details={"since_us": at(99)}), finding_event(110, "cleared"))
    session = record_incident(tmp_path, (*first, *EVENTS), seconds=range(0, END_S, 5))
    incident = facts_of(session, Asked(finding="io-stalled"))
    assert moments(incident)["began"].at_us == at(BEGAN_S) and "number 2 of 2" in incident.chosen
    earlier = facts_of(session, Asked(finding=FINDING, at_us=at(105)))
    assert moments(earlier)["began"].at_us == at(99) and "number 1 of 2" in earlier.chosen
    with pytest.raises(UsageError) as refused:
        facts_of(session, Asked(finding="nothing-like-it"))
    assert FINDING in str(refused.value.hint)


def test_a_finding_that_was_open_for_hours_does_not_move_the_beginning(tmp_path: Path) -> None:
    old = finding_event(1, "raised", "backups-old", severity="warning", details={"since_us": at(-7200), "chain": []})
    incident = facts_of(record_incident(tmp_path, (old, *EVENTS), seconds=range(0, END_S, 5)), Asked(finding=FINDING))
    assert moments(incident)["began"].at_us == at(BEGAN_S) and moments(incident)["ended"].at_us == at(CLEARED_S)
    assert [one.id for one in incident.causes] == [FINDING] and [one.id for one in incident.others] == ["backups-old"]


def test_a_named_info_finding_beside_a_critical_one_has_its_times(tmp_path: Path) -> None:
    info = finding_event(10, "raised", "discard-mount", severity="info", details={"since_us": at(9), "chain": []})
    session = record_incident(tmp_path, (info, *EVENTS), seconds=range(0, END_S, 5))
    incident = facts_of(session, Asked(finding="discard-mount"))
    assert moments(incident)["began"].at_us == at(9) and moments(incident)["detected"].at_us == at(10)


def test_settings_that_differ_at_the_end_are_listed(session: Path) -> None:
    changes = {one.name: (one.before, one.after) for one in facts_of(session).changes}
    assert changes == {"setting work_mem": ("4096", "65536")}


def test_a_decision_shows_what_was_on_the_screen(session: Path) -> None:
    [decision] = facts_of(session).decisions
    assert (decision.who, decision.screen_us) == ("alice", at(330))
    assert decision.findings == ("critical: Connections fill (20 of 20 usable)",)
    assert any("20 of 20" in line for line in decision.screen)


def test_a_span_without_samples_is_named_and_leaves_a_break_in_the_charts(tmp_path: Path) -> None:
    session = record_incident(tmp_path, seconds=(*range(280, 340), *range(400, END_S)))
    incident = facts_of(session)
    assert [gap.reason for gap in incident.gaps] and any("What happened from" in one for one in incident.questions)
    assert [row.kind for row in incident.timeline].count("gap") >= 1
    chart = next(one for one in incident.charts if one.title == "Connections")
    assert chart.series[0].breaks_us == (at(400),)
    # A minute without readings is not counted as a minute at the limit.
    assert values(incident)["All ordinary connection slots in use"] == "1m of 1m01s"
    alone = facts_of(session, Asked(from_us=at(345), to_us=at(395)))
    assert "has no samples in the span" in " ".join(alone.missing)


def test_a_clock_set_back_neither_loses_readings_nor_counts_time_twice(tmp_path: Path) -> None:
    def stepped(second: int) -> Sample:
        made = tick(second)
        back_us = 60 * SECOND if second >= 360 else 0
        return Sample(made.seq, made.wall_us - back_us, made.mono_us, made.parts, made.boot)

    jump = Event(
        wall_us=at(300),
        kind="clock.jump",
        text="the host's clock was set back by 1m00s",
        severity="warning",
        details={},
    )
    cleared = Event(**{**{name: getattr(EVENTS[2], name) for name in Event.__struct_fields__}, "wall_us": at(360)})
    session = record_incident(tmp_path, (EVENTS[0], jump, cleared), make=stepped, seconds=range(240, END_S))
    incident = facts_of(session, Asked(from_us=at(240), to_us=at(380)))
    assert any("not comparable" in one for one in incident.missing)
    # From 300 to 360, then again from 300 on: two minutes at the limit, as it was.
    assert values(incident)["All ordinary connection slots in use"] == "2m of 2m01s"


def with_readings(second: int, *, ahead_us: int = 0, **readings: Any) -> Sample:
    """That second with these readings, `_` for the dot in their names, and a clock that is ahead."""
    made = tick(second)
    named = {name.replace("_", ".", 1): reading for name, reading in readings.items()}
    parts = [part for part in made.parts if part.name not in named]
    parts += [make_part(name, reading, at_us=made.mono_us) for name, reading in named.items() if reading is not None]
    return Sample(made.seq, made.wall_us + ahead_us, made.mono_us, parts, made.boot)


def test_a_clock_set_forward_does_not_make_a_wait_longer(tmp_path: Path) -> None:
    hour_us = 3600 * SECOND

    def stepped(second: int) -> Sample:
        ahead_us = hour_us if second >= 331 else 0
        since_us = at(325) if second < 390 else at(second - 4) + hour_us
        waiter = LockWaiter(1000, [1001], "relation", "ShareLock", "public.t", since_us)
        at_start = {} if second % 30 else {"pg_server": server(now_us=at(second) + ahead_us)}
        return with_readings(second, ahead_us=ahead_us, pg_locks=Locks([waiter], []), **at_start)

    session = record_incident(tmp_path, EVENTS[:1], make=stepped, seconds=range(240, END_S))
    incident = facts_of(session, Asked(from_us=at(300), to_us=at(END_S) + hour_us))
    # The readings until the server's new clock is known measure the wait correctly: from 325 to 359.
    assert values(incident)["Longest lock wait"] == "34s (pid 1000 for ShareLock on public.t)"


def test_who_blocked_whom_is_computed_from_recordings_without_that_part(tmp_path: Path) -> None:
    """As of older versions: the readings have no starts of backends, the sessions have them."""

    def blocked(second: int) -> Sample:
        waits = [LockWaiter(1000, [1001], "relation", "ShareLock", "public.t", at(320))] if 320 <= second < 340 else []
        if second == 350:
            waits = [LockWaiter(1002, [1003], "tuple", "ExclusiveLock", None, at(350) - SECOND // 10)]
        return with_readings(second, pg_locks=Locks(waits, []))

    incident = facts_of(record_incident(tmp_path, make=blocked, seconds=range(290, END_S)), Asked(at(300), at(END_S)))
    (facts,) = incident.blocking
    assert [(one.who, one.waited_s, len(one.waiters)) for one in facts.blockers] == [
        ("pid 1001, orders-api, user app", 19.0, 1),
        ("pid 1003, orders-api, user app", 0.1, 1),
    ]
    first = facts.blockers[0]
    assert (first.from_us, first.to_us, first.waiters[0].lock) == (at(320), at(339), "ShareLock on public.t")
    short, whole = render(incident, at(0)).markdown, render(incident, at(0), full=True).markdown
    assert "pid 1001" in short and "pid 1003" not in short and "Not listed: 1 more" in short
    assert "pid 1003" in whole


def test_without_waits_the_report_has_no_section_about_them(session: Path) -> None:
    incident = facts_of(session)
    assert incident.blocking == () and "Who blocked whom" not in render(incident, at(0)).html


def test_statistics_of_one_database_that_are_reset_do_not_hide_transactions_of_others(tmp_path: Path) -> None:
    def reset(second: int) -> Sample:
        shop = 100 * second + (5000 if second >= 360 else 0)
        other = 10 * (second if second < 360 else second - 360)
        rows = [of(DatabaseStat, oid=1, xact_commit=shop), of(DatabaseStat, oid=2, xact_commit=other)]
        return with_readings(second, pg_databases=None if second % 3 else DatabaseStats(rows))

    incident = facts_of(record_incident(tmp_path, make=reset, seconds=range(200, END_S)))
    assert values(incident)["Transactions"] == "12870 in 1m57s (110.0/s)"


@pytest.mark.parametrize("how", ["samples cut", "database damaged", "not closed"])
def test_a_damaged_session_gives_what_can_be_read_and_says_what_is_missing(tmp_path: Path, how: str) -> None:
    session = tmp_path / SHIPPED.name
    shutil.copytree(SHIPPED, session)
    if how == "samples cut":
        (session / SAMPLES).write_bytes((SHIPPED / SAMPLES).read_bytes()[:20_000])
    elif how == "database damaged":
        data = bytearray((SHIPPED / DATABASE).read_bytes())
        data[100:4096] = bytes(3996)
        (session / DATABASE).write_bytes(bytes(data))
    else:
        session = record_incident(tmp_path, seconds=range(290, 350), close=False)
    incident = facts_of(session)
    assert incident.missing and moments(incident)["detected"].at_us is not None


@pytest.mark.parametrize("seed", range(16))
def test_a_session_damaged_anywhere_is_reported_or_refused(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    session = tmp_path / SHIPPED.name
    shutil.copytree(SHIPPED, session)
    for name in (DATABASE, SAMPLES):
        data = bytearray((session / name).read_bytes())
        for _ in range(random.randint(0, 100)):
            data[random.randrange(len(data))] = random.randrange(256)
        (session / name).write_bytes(bytes(data[: random.randrange(len(data) // 2, len(data))]))
    try:
        incident = facts_of(session)
    except ConsoleError:
        return
    assert incident.missing and render(incident, at(0)).html


def test_without_a_finding_the_report_says_so(tmp_path: Path) -> None:
    incident = facts_of(record_incident(tmp_path, (), seconds=range(0, 100, 10)))
    assert incident.causes == () and all(one.at_us is None for one in incident.moments)
    assert "no finding above info was open" in incident.summary[0] and "no finding was raised" in incident.chosen


def test_hostile_text_reaches_the_record_masked_and_on_one_line(tmp_path: Path) -> None:
    hostile = "<script>\x1b[2J\u202e|`*\npostgresql://u:s3cret-word@h/db password=s3cret-word"
    events = (
        finding_event(RAISED_S, "raised", f"x:{hostile}", text=hostile, details={"evidence": {hostile: hostile}}),
        event(310, "note", hostile, who=hostile),
        event(311, "run.started", hostile, who=hostile, details={"run": hostile}),
    )
    incident = facts_of(record_incident(tmp_path, events, seconds=range(295, 330)))
    assert not unclean(incident)
    assert "s3cret-word" not in repr(incident).replace("alice", "")


def test_very_many_events_become_a_timeline_that_can_be_read(tmp_path: Path) -> None:
    noise = [event(300 + number / 200, "probe.failed", f"timeout {number}") for number in range(20_000)]
    others = [event(300 + number / 10, "lane.stuck", f"lane {chr(97 + number % 26)}") for number in range(1000)]
    session = record_incident(tmp_path, (*EVENTS[:2], *noise, *others, *EVENTS[2:]), seconds=range(290, 430, 10))
    incident = facts_of(session)
    assert len(incident.timeline) <= MAX_ROWS and incident.omitted
    assert {"finding.raised", "finding.cleared"} <= {row.kind for row in incident.timeline}


def test_charts_have_few_points_and_keep_their_spikes(session: Path) -> None:
    for chart in facts_of(session).charts:
        assert all(len(one.points) <= 2 * BUCKETS for one in chart.series)
    shipped = facts_of(SHIPPED)
    assert next(one for one in shipped.ranges if one.name == "Connections").highest == "237"


def test_times_of_another_session_of_the_same_host_need_no_offset(tmp_path: Path, session: Path) -> None:
    about = meta()
    other = record_incident(
        tmp_path, (event(350, "note", "elsewhere", who="eve"),), seconds=range(340, 360), about=about
    )
    first, second = facts_of(session, Asked(), other).sessions
    assert first.offset_us == 0 and second.offset_us == 0 and "one host" in second.offset_how
