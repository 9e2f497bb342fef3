"""The server: disconnected with the cause, silent, restarted, replaced by another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dba_console.agent.server_service import failure_text as told_by_the_agent
from dba_console.watch.findings.rule import find_outage
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectKind
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host
from dba_console.watch.samples.sample import Status
from dba_console.watch.server.state_rules import STATE_RULES as RULES
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, of, server, sessions
from tests.unit.watch.findings.reading_ticks import PartTicks

CONNECTED: Mapping[str, Any] = {"pg.activity": sessions()}


def disconnected(kind: ConnectKind, text: str = "it failed") -> dict[str, tuple[Status, str | None]]:
    """The parts of a tick without a connection, with the agent's own words."""
    note = told_by_the_agent(ConnectFailed(kind, text))
    return {"pg.activity": ("error", "no connection"), "pg.server": ("error", note)}


def after_seconds(seconds: int, missing: dict[str, tuple[Status, str | None]], **parts: Any) -> PartTicks:
    """What is concluded when this has been so for that long, of a server that was there before."""
    part_ticks = PartTicks(*RULES)
    part_ticks.tick({"pg.server": server(), **CONNECTED})
    for _ in range(seconds + 1):
        part_ticks.tick(parts, missing=missing)
    return part_ticks


@pytest.mark.parametrize("kind", ["no_slots", "starting", "refused", "auth", "timeout", "unknown_host", "ssl", "other"])
def test_the_agent_error_determines_the_kind_of_outage(kind: ConnectKind) -> None:
    parts = [part(name, None, status=status, note=note) for name, (status, note) in disconnected(kind).items()]
    outage = find_outage(picture(sample(*parts)))
    assert outage is not None
    assert (outage.kind, outage.text) == (kind, "it failed")


@pytest.mark.parametrize("kind", ["refused", "starting", "timeout", "other"])
def test_no_listener_is_a_warning_first_and_critical_after_ten_seconds(kind: ConnectKind) -> None:
    assert after_seconds(2, disconnected(kind)).open == []
    assert after_seconds(3, disconnected(kind)).severities == {"server-down": "warning"}
    assert after_seconds(9, disconnected(kind)).severities == {"server-down": "warning"}
    assert after_seconds(10, disconnected(kind)).severities == {"server-down": "critical"}


@pytest.mark.parametrize("kind", ["auth", "ssl", "unknown_host"])
def test_a_server_that_rejects_only_the_console_is_never_critical(kind: ConnectKind) -> None:
    part_ticks = after_seconds(60, disconnected(kind))
    assert part_ticks.severities == {"server-down": "warning"}
    assert part_ticks.open[0].text == "PostgreSQL refuses the console: it failed"


def test_no_free_slot_does_not_mean_the_server_is_down() -> None:
    assert after_seconds(60, disconnected("no_slots")).open == []


def test_a_silent_server_gets_more_time_than_a_missing_one() -> None:
    silent: dict[str, tuple[Status, str | None]] = {"pg.activity": ("timeout", "no answer for 12 s")}
    assert after_seconds(4, silent).open == []
    assert after_seconds(6, silent).severities == {"server-down": "warning"}
    assert after_seconds(31, silent).severities == {"server-down": "critical"}
    assert after_seconds(6, silent).open[0].text == "PostgreSQL does not answer: no answer for 12 s"


def test_a_part_that_could_not_be_read_is_not_an_outage() -> None:
    odd: dict[str, tuple[Status, str | None]] = {"pg.activity": ("error", "the server's answer could not be read")}
    assert after_seconds(60, odd).open == []


def test_an_outage_across_a_gap_starts_again() -> None:
    part_ticks = after_seconds(2, disconnected("refused"))
    part_ticks.tick({}, after_s=60.0, missing=disconnected("refused"))
    assert part_ticks.open == []


def test_the_shutdown_state_in_the_control_file_is_reported() -> None:
    control = of(host.ControlFile, state="shut down", data_directory="/pg")
    (row,) = after_seconds(4, disconnected("refused", "Connection refused"), **{"host.control": control}).open
    assert row.text == "PostgreSQL cannot be reached: Connection refused (it was shut down cleanly)"
    assert row.advice == "It was stopped deliberately: find out why before you start it."
    (row,) = after_seconds(4, disconnected("starting"), **{"host.control": control}).open
    assert "shut down" not in row.text, "a recovery ends with the same word"


# -- news


def changed(before: dict[str, Any], now: dict[str, Any], **parts: Any) -> PartTicks:
    part_ticks = PartTicks(*RULES)
    part_ticks.tick({"pg.server": server(**before), **CONNECTED})
    part_ticks.tick({"pg.server": server(**now), **CONNECTED, **parts})
    return part_ticks


def test_the_first_reading_is_not_a_change() -> None:
    part_ticks = PartTicks(*RULES)
    part_ticks.tick({"pg.server": server(), **CONNECTED})
    assert part_ticks.changes == []


def test_a_restart_is_reported_for_a_quarter_of_an_hour_after_it() -> None:
    started_us = NOW_US - 20_000_000
    part_ticks = changed({}, {"start_us": started_us})
    (row,) = part_ticks.open
    assert (row.id, row.severity) == ("server-restarted", "warning")
    assert abs(row.since_us - started_us) < 3_000_000
    part_ticks.tick({"pg.server": server(start_us=started_us)}, after_s=890.0)
    assert [row.id for row in part_ticks.open] == ["server-restarted"]
    part_ticks.tick({"pg.server": server(start_us=started_us)}, after_s=30.0)
    assert part_ticks.open == []


@pytest.mark.parametrize(
    ("before", "now", "severity", "text"),
    [
        ({"in_recovery": True}, {"timeline": 4}, "warning", "The standby was promoted: it is a primary now"),
        ({}, {"in_recovery": True}, "warning", "A standby answers where a primary did"),
        ({}, {"timeline": 4}, "warning", "Another primary answers after a failover, timeline 3 became 4"),
        ({"in_recovery": True}, {"in_recovery": True, "timeline": 4}, "info", "The standby follows another timeline"),
        ({}, {"system_identifier": "9"}, "critical", "A different cluster answers: system identifier 743"),
    ],
)  # fmt: skip
def test_another_role_timeline_or_cluster_is_reported(
    before: dict[str, Any], now: dict[str, Any], severity: str, text: str
) -> None:
    (row,) = changed(before, now).open
    assert (row.rule, row.severity) == ("server-promoted", severity)
    assert row.text.startswith(text)


def test_a_standby_that_lost_its_receiver_has_not_returned_to_an_earlier_timeline() -> None:
    """Without one it reports the timeline of its last restartpoint."""
    part_ticks = changed({"in_recovery": True, "timeline": 4}, {"in_recovery": True, "timeline": 3})
    assert part_ticks.open == []
    part_ticks.tick({"pg.server": server(in_recovery=True, timeline=4), **CONNECTED})
    assert part_ticks.open == []


def test_an_unreadable_system_identifier_is_not_another_cluster() -> None:
    assert changed({}, {"system_identifier": None}).open == []


def test_an_upgrade_is_one_finding_with_its_restart() -> None:
    (row,) = changed({}, {"start_us": NOW_US, "version_num": 150019, "version": "15.19"}).open
    assert row.text == "PostgreSQL was restarted: PostgreSQL 15.18 was replaced by 15.19"
    assert row.severity == "warning"


def test_settings_are_reported_with_their_first_and_last_value() -> None:
    part_ticks = PartTicks(*RULES)
    for value in ("250", "300", "400"):
        part_ticks.tick({"pg.server": server(with_settings={"max_connections": value})}, after_s=30.0)
    (row,) = part_ticks.open
    assert (row.severity, row.text) == ("info", "Settings changed: max_connections from 250 to 400")
    part_ticks.tick({"pg.server": server(with_settings={"max_connections": "250"})}, after_s=30.0)
    assert part_ticks.open == [], "it was put back"


def test_a_secret_in_a_setting_stays_masked() -> None:
    secret = {"archive_command": "curl postgresql://archive:s3cret@store/%f"}
    (row,) = changed({"with_settings": {"archive_command": "false"}}, {"with_settings": secret}).open
    assert "s3cret" not in row.text + str(row.evidence)


def test_a_setting_that_can_no_longer_be_read_has_not_changed() -> None:
    assert changed({"with_settings": {"archive_command": "cp"}}, {}).open == []


def test_a_crash_is_not_inferred_from_counters_with_low_values() -> None:
    def counted(commits: int) -> DatabaseStats:
        return DatabaseStats([of(DatabaseStat, oid=5, name="app", xact_commit=commits)])

    for counts, crashed in (((90, 1), None), ((5000, 1), True), ((5000, 5001), False)):
        part_ticks = PartTicks(*RULES)
        part_ticks.tick({"pg.server": server(), "pg.databases": counted(counts[0]), **CONNECTED})
        part_ticks.tick({"pg.server": server(start_us=NOW_US), "pg.databases": counted(counts[1]), **CONNECTED})
        assert part_ticks.open[0].evidence["crashed"] is crashed


def test_a_stopped_postmaster_needs_two_seconds_and_its_own_process() -> None:
    def processes(*states: str) -> host.Processes:
        rows = [of(host.Process, pid=100 + number, state=state) for number, state in enumerate(states)]
        return host.Processes(100, rows, {state: states.count(state) for state in states}, len(rows))

    part_ticks = PartTicks(*RULES)
    for _ in range(2):
        part_ticks.tick({"host.processes": processes("T", "S")})
    assert part_ticks.open == []
    part_ticks.tick({"host.processes": processes("T", "S")})
    assert part_ticks.severities == {"postmaster-stopped": "critical"}
    other = PartTicks(*RULES)
    for _ in range(5):
        other.tick({"host.processes": processes("S", "T")})
    assert other.open == [], "a session that somebody debugs"


def test_checkpointers_hidden_from_the_role_report_nothing() -> None:
    hidden = {"pg.activity": sessions(activity(9, None, backend_type=None))}
    part_ticks = PartTicks(*RULES)
    for _ in range(3):
        part_ticks.tick({"pg.server": server(), **hidden}, after_s=30.0)
    assert part_ticks.changes == []
