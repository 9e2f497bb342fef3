"""The server: away and why, silent, begun anew, another than it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dba_console.agent.server_service import failure_text as told_by_the_agent
from dba_console.watch.findings.rule import find_outage
from dba_console.watch.findings.server import RULES
from dba_console.watch.probes.postgres.connect_errors import ConnectFailed, ConnectKind
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.sample import Status
from tests.build import NOW_US, part, picture, sample
from tests.readings import activity, of, server, sessions
from tests.unit.watch.findings.part_ticks import Telling

HEARD: Mapping[str, Any] = {"pg.activity": sessions()}


def away(kind: ConnectKind, text: str = "it failed") -> dict[str, tuple[Status, str | None]]:
    """The parts of a tick without a connection, with the agent's own words."""
    note = told_by_the_agent(ConnectFailed(kind, text))
    return {"pg.activity": ("error", "no connection"), "pg.server": ("error", note)}


def after(seconds: int, missing: dict[str, tuple[Status, str | None]], **parts: Any) -> Telling:
    """What is concluded when this has been so for that long, of a server that was there before."""
    telling = Telling(RULES)
    telling.tick({"pg.server": server(), **HEARD})
    for _ in range(seconds + 1):
        telling.tick(parts, missing=missing)
    return telling


@pytest.mark.parametrize("kind", ["no_slots", "starting", "refused", "auth", "timeout", "unknown_host", "ssl", "other"])
def test_the_agent_error_determines_the_kind_of_outage(kind: ConnectKind) -> None:
    parts = [part(name, None, status=status, note=note) for name, (status, note) in away(kind).items()]
    outage = find_outage(picture(sample(*parts)))
    assert outage is not None
    assert (outage.kind, outage.text) == (kind, "it failed")


@pytest.mark.parametrize("kind", ["refused", "starting", "timeout", "other"])
def test_no_listener_is_a_warning_first_and_critical_after_ten_seconds(kind: ConnectKind) -> None:
    assert after(2, away(kind)).open == []
    assert after(3, away(kind)).severities == {"server-down": "warning"}
    assert after(9, away(kind)).severities == {"server-down": "warning"}
    assert after(10, away(kind)).severities == {"server-down": "critical"}


@pytest.mark.parametrize("kind", ["auth", "ssl", "unknown_host"])
def test_a_server_that_rejects_only_the_console_is_never_critical(kind: ConnectKind) -> None:
    telling = after(60, away(kind))
    assert telling.severities == {"server-down": "warning"}
    assert telling.open[0].text == "PostgreSQL refuses the console: it failed"


def test_no_free_slot_does_not_mean_the_server_is_down() -> None:
    assert after(60, away("no_slots")).open == []


def test_a_silent_server_gets_more_time_than_a_missing_one() -> None:
    silent: dict[str, tuple[Status, str | None]] = {"pg.activity": ("timeout", "no answer for 12 s")}
    assert after(4, silent).open == []
    assert after(6, silent).severities == {"server-down": "warning"}
    assert after(31, silent).severities == {"server-down": "critical"}
    assert after(6, silent).open[0].text == "PostgreSQL does not answer: no answer for 12 s"


def test_a_part_that_could_not_be_read_is_not_an_outage() -> None:
    odd: dict[str, tuple[Status, str | None]] = {"pg.activity": ("error", "the server's answer could not be read")}
    assert after(60, odd).open == []


def test_an_outage_across_a_gap_starts_again() -> None:
    telling = after(2, away("refused"))
    telling.tick({}, after_s=60.0, missing=away("refused"))
    assert telling.open == []


def test_the_shutdown_state_in_the_control_file_is_reported() -> None:
    control = of(host.ControlFile, state="shut down", data_directory="/pg")
    (row,) = after(4, away("refused", "Connection refused"), **{"host.control": control}).open
    assert row.text == "PostgreSQL cannot be reached: Connection refused (it was shut down cleanly)"
    assert row.advice == "It was stopped deliberately: find out why before you start it."
    (row,) = after(4, away("starting"), **{"host.control": control}).open
    assert "shut down" not in row.text, "a recovery ends with the same word"


# -- news


def changed(before: dict[str, Any], now: dict[str, Any], **parts: Any) -> Telling:
    telling = Telling(RULES)
    telling.tick({"pg.server": server(**before), **HEARD})
    telling.tick({"pg.server": server(**now), **HEARD, **parts})
    return telling


def test_the_first_reading_is_not_a_change() -> None:
    telling = Telling(RULES)
    telling.tick({"pg.server": server(), **HEARD})
    assert telling.changes == []


def test_a_restart_is_reported_for_a_quarter_of_an_hour_after_it() -> None:
    started_us = NOW_US - 20_000_000
    telling = changed({}, {"start_us": started_us})
    (row,) = telling.open
    assert (row.id, row.severity) == ("server-restarted", "warning")
    assert abs(row.since_us - started_us) < 3_000_000
    telling.tick({"pg.server": server(start_us=started_us)}, after_s=890.0)
    assert [row.id for row in telling.open] == ["server-restarted"]
    telling.tick({"pg.server": server(start_us=started_us)}, after_s=30.0)
    assert telling.open == []


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


def test_an_unreadable_system_identifier_is_not_another_cluster() -> None:
    assert changed({}, {"system_identifier": None}).open == []


def test_an_upgrade_is_one_finding_with_its_restart() -> None:
    (row,) = changed({}, {"start_us": NOW_US, "version_num": 150019, "version": "15.19"}).open
    assert row.text == "PostgreSQL was restarted: PostgreSQL 15.18 was replaced by 15.19"
    assert row.severity == "warning"


def test_settings_are_reported_with_their_first_and_last_value() -> None:
    telling = Telling(RULES)
    for value in ("250", "300", "400"):
        telling.tick({"pg.server": server(with_settings={"max_connections": value})}, after_s=30.0)
    (row,) = telling.open
    assert (row.severity, row.text) == ("info", "Settings changed: max_connections from 250 to 400")
    telling.tick({"pg.server": server(with_settings={"max_connections": "250"})}, after_s=30.0)
    assert telling.open == [], "it was put back"


def test_a_secret_in_a_setting_stays_masked() -> None:
    secret = {"archive_command": "curl postgresql://archive:s3cret@store/%f"}
    (row,) = changed({"with_settings": {"archive_command": "false"}}, {"with_settings": secret}).open
    assert "s3cret" not in row.text + str(row.evidence)


def test_a_setting_that_can_no_longer_be_read_has_not_changed() -> None:
    assert changed({"with_settings": {"archive_command": "cp"}}, {}).open == []


def test_a_crash_is_not_inferred_from_counters_with_low_values() -> None:
    def counted(commits: int) -> postgres.DatabaseStats:
        return postgres.DatabaseStats([of(postgres.DatabaseStat, oid=5, name="app", xact_commit=commits)])

    for counts, crashed in (((90, 1), None), ((5000, 1), True), ((5000, 5001), False)):
        telling = Telling(RULES)
        telling.tick({"pg.server": server(), "pg.databases": counted(counts[0]), **HEARD})
        telling.tick({"pg.server": server(start_us=NOW_US), "pg.databases": counted(counts[1]), **HEARD})
        assert telling.open[0].evidence["crashed"] is crashed


def test_a_stopped_postmaster_needs_two_seconds_and_its_own_process() -> None:
    def processes(*states: str) -> host.Processes:
        rows = [of(host.Process, pid=100 + number, state=state) for number, state in enumerate(states)]
        return host.Processes(100, rows, {state: states.count(state) for state in states}, len(rows))

    telling = Telling(RULES)
    for _ in range(2):
        telling.tick({"host.processes": processes("T", "S")})
    assert telling.open == []
    telling.tick({"host.processes": processes("T", "S")})
    assert telling.severities == {"postmaster-stopped": "critical"}
    other = Telling(RULES)
    for _ in range(5):
        other.tick({"host.processes": processes("S", "T")})
    assert other.open == [], "a session that somebody debugs"


def test_checkpointers_hidden_from_the_role_report_nothing() -> None:
    hidden = {"pg.activity": sessions(activity(9, None, backend_type=None))}
    telling = Telling(RULES)
    for _ in range(3):
        telling.tick({"pg.server": server(), **hidden}, after_s=30.0)
    assert telling.changes == []
