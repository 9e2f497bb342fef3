"""Connections: near the limit, full by a date, counted blind, near a limit of their own."""

from __future__ import annotations

from typing import Any

import pytest

from dba_console.watch.connections.rules import FAMILY
from dba_console.watch.samples import host, postgres
from tests.readings import of
from tests.unit.watch.findings.server_ticks import ServerTicks, server_ticks

# -- near the limit


def test_connections_near_the_usable_limit_are_reported_with_their_holders() -> None:
    row = server_ticks(215).only_one("connections-filling")
    assert row.severity == "warning"
    assert row.text == (
        "Connections fill (215 of 247 usable, 87%); 215 are idle sessions of shop-web-pool, oldest idle 10m"
    )
    assert (row.evidence["used"], row.evidence["usable"], row.evidence["holder_count"]) == (215, 247, 215)
    assert row.runbook == "connection-storm"


def test_a_test_load_of_four_fifths_is_not_a_finding() -> None:
    server = server_ticks(201)
    server.ticks(60)
    assert server.raised == []


def test_nearly_all_connections_used_are_critical() -> None:
    assert server_ticks(236).only_one("connections-filling").severity == "critical"


def test_all_connections_used_is_stated() -> None:
    assert (
        server_ticks(247).only_one("connections-filling").text.startswith("Connections are used up (247 of 247 usable")
    )


def test_reserved_connections_are_not_usable() -> None:
    server = server_ticks(205, with_settings={"reserved_connections": "20"}, version_num=160004)
    assert "205 of 227 usable" in server.only_one("connections-filling").text


def test_the_fill_warning_clears_only_well_below_its_limit() -> None:
    server = server_ticks(215)
    server.rows = server.rows[:203]
    server.ticks(60)
    server.only_one("connections-filling")
    server.rows = server.rows[:190]
    assert server.ticks(30) == []


def test_a_count_that_swings_around_a_limit_changes_its_severity_once() -> None:
    server = server_ticks(230)
    for _ in range(20):
        server.rows = server.pool(236)
        server.tick()
        server.rows = server.pool(232)
        server.tick()
    assert [change.kind for change in server.changes] == ["raised", "changed"]


def test_unreadable_sessions_do_not_clear_an_open_finding() -> None:
    server = server_ticks(240)
    for _ in range(50):
        server.tick_unread()
    server.only_one("connections-filling")


def test_values_not_read_for_minutes_are_no_longer_claimed() -> None:
    server = server_ticks(240)
    for _ in range(100):
        server.tick_unread()
    assert server.open == []


def test_without_the_settings_nothing_is_raised() -> None:
    server = ServerTicks(*FAMILY.rules)
    server.extra = {}
    server.rows = server.pool(240)
    server.ticks(5)
    assert server.raised == []


def test_a_lost_connection_is_not_reported_as_full_for_long() -> None:
    server = server_ticks(240)
    for _ in range(40):
        server.tick_unread(status="error")
    assert server.open == []


def test_hidden_states_are_not_reported_as_idle() -> None:
    server = ServerTicks(*FAMILY.rules)
    server.rows = server.pool(215, state=None, state_change=None, backend_start=None, query="<insufficient privilege>")
    server.ticks(3)
    assert server.only_one("connections-filling").text.endswith("; 215 are sessions of orders-api")


# -- by date


def grow(server: ServerTicks, per_s: float, seconds: int) -> None:
    made: dict[str, Any] = {"backend_start": server.ago(0), "application": "api"}
    start = len(server.rows)
    for second in range(1, seconds + 1):
        more = int(per_s * second)
        server.rows = [*server.rows[:start], *server.pool(more, 5000, **made)]
        server.tick()


def test_steady_growth_is_reported_with_its_rate_and_its_fill_time() -> None:
    server = server_ticks(120)
    grow(server, 0.5, 60)
    row = server.only_one("connections-filling")
    assert row.severity == "warning"
    assert "+30/min, full in " in row.text
    assert 20 <= row.evidence["growth_per_min"] <= 40
    assert 150 <= row.evidence["full_in_s"] <= 300


def test_growth_names_the_new_clients_and_not_the_existing_ones() -> None:
    server = server_ticks(120)
    grow(server, 0.5, 60)
    row = server.only_one("connections-filling")
    assert row.text.endswith(f"; {row.evidence['newest_count']} of them opened by api in the last 57s")
    assert row.evidence["newest_application"] == "api"
    assert row.evidence["holder_application"] == "shop-web-pool"


def test_a_pool_from_before_the_first_reading_is_not_the_cause_of_growth() -> None:
    server = ServerTicks(*FAMILY.rules)
    server.rows = server.pool(120, backend_start=server.ago(5), application="shop-web-pool")
    server.ticks(2)
    grow(server, 0.5, 60)
    assert server.only_one("connections-filling").text.endswith(" of them opened by api in the last 57s")


def test_growth_of_many_clients_is_reported_by_their_user_or_by_the_largest_holder() -> None:
    server = server_ticks(120)
    for second in range(60):
        made: dict[str, Any] = {"application": f"job-{second}", "user": "batch", "backend_start": server.ago(0.5)}
        server.rows = [*server.rows, *server.pool(second % 2, 5000 + second, **made)]
        server.tick()
    assert "of them opened by user batch in the last 57s" in server.only_one("connections-filling").text


def test_growth_that_fills_the_server_within_the_minute_is_critical_below_nine_tenths() -> None:
    server = server_ticks(120)
    grow(server, 1.3, 68)
    row = server.only_one("connections-filling")
    assert row.severity == "critical"
    assert row.evidence["used_pct"] < 90


def test_growth_on_a_mostly_empty_server_has_no_fill_time() -> None:
    server = server_ticks(20)
    grow(server, 0.6, 90)
    assert server.raised == []


def test_a_pool_that_grew_once_and_stays_has_no_fill_time() -> None:
    server = server_ticks(120)
    server.rows = [*server.rows, *server.pool(25, 5000, backend_start=server.ago(1), application="api")]
    server.ticks(120)
    assert server.raised == []


def test_a_pool_that_fills_half_the_server_within_half_a_minute_is_never_critical() -> None:
    server = server_ticks(20)
    grow(server, 5, 34)
    server.ticks(200)
    assert "critical" not in {change.finding.severity for change in server.changes}


def test_two_steps_are_not_growth_with_a_fill_time() -> None:
    server = server_ticks(13)
    server.ticks(20)
    for used in (109, 193):
        server.rows = server.pool(used, application="shop-pool")
        server.tick()
    server.ticks(120)
    assert server.raised == []


def test_growth_that_stopped_no_longer_has_a_fill_time() -> None:
    server = server_ticks(120)
    grow(server, 0.5, 60)
    server.only_one("connections-filling")
    server.ticks(60)
    assert server.open == []


# -- blind


def titles(count: int) -> host.ProcessTitles:
    rows = [
        of(host.ProcessTitle, pid=1000 + at, kind="client backend", user="shop_web", database="shop", state="idle")
        for at in range(count)
    ]
    return of(host.ProcessTitles, postmaster=900, rows=rows, update_process_title=True)


def test_in_blind_mode_a_full_server_is_detected_by_process_titles_with_its_user() -> None:
    server = ServerTicks(*FAMILY.rules)
    server.tick()
    for _ in range(4):
        server.tick_only(**{"host.titles": titles(247)})
    row = server.only_one("connections-filling")
    assert row.severity == "critical"
    assert "247 are idle sessions of user shop_web" in row.text
    assert row.evidence["source"] == "process_titles"


GERMAN = "Verbindung zum Server fehlgeschlagen: FATAL:  53300: {}\nLOCATION:  {}, {}"


@pytest.mark.parametrize(
    "raw",
    [
        "connection failed: FATAL:  53300: sorry, too many clients already\nLOCATION:  InitProcess, proc.c:353",
        GERMAN.format("tut mir leid, schon zu viele Verbindungen", "InitProcess", "proc.c:353"),
        GERMAN.format("die verbleibenden Verbindungen sind reserviert", "InitPostgres", "postinit.c:836"),
    ],
)
def test_blind_mode_without_any_admission_is_critical_in_any_language_whatever_the_titles(raw: str) -> None:
    server = ServerTicks(*FAMILY.rules)
    server.tick()
    for _ in range(3):
        server.tick_only(**{"host.titles": titles(220)})
    assert server.only_one("connections-filling").severity == "warning"
    for _ in range(3):
        server.tick_refused(raw, **{"host.titles": titles(220)})
    assert server.only_one("connections-filling").severity == "critical"


@pytest.mark.parametrize("function", ["InitializeSessionUserId", "CheckMyDatabase"])
def test_blind_mode_because_of_our_role_or_database_limit_says_nothing_of_the_server(function: str) -> None:
    server = ServerTicks(*FAMILY.rules)
    server.tick()
    for _ in range(5):
        server.tick_refused(GERMAN.format("zu viele Verbindungen", function, "x.c:1"), **{"host.titles": titles(220)})
    assert server.only_one("connections-filling").severity == "warning"


def test_entering_blind_mode_is_not_a_storm() -> None:
    server = server_ticks(100)
    for _ in range(4):
        server.tick_only(**{"host.titles": titles(190)})
    assert server.raised == []


# -- limits of roles and databases


def roles(limit: int, *, superuser: bool = False) -> list[postgres.Role]:
    return [postgres.Role("app", limit, superuser)]


def test_a_role_near_its_connection_limit_is_reported_by_name() -> None:
    server = server_ticks(55, roles=roles(60))
    server.ticks(3)
    row = server.only_one("connection-limit:role app")
    assert row.text == "Connections of role app are near its CONNECTION LIMIT (55 of 60)"


def test_a_database_at_its_connection_limit_shows_the_consequence() -> None:
    database = of(postgres.Database, oid=5, name="appdb", connection_limit=55)
    server = server_ticks(55, databases=[database])
    server.ticks(3)
    row = server.only_one("connection-limit:database appdb")
    assert row.text.endswith("(55 of 55); more are refused")
    assert row.severity == "warning"


def test_limits_without_effect_are_not_reported() -> None:
    assert server_ticks(55, roles=roles(-1)).ticks(4) == []
    assert server_ticks(55, roles=roles(0)).ticks(4) == []
    assert server_ticks(55, roles=roles(55, superuser=True)).ticks(4) == []
    assert server_ticks(2, roles=roles(2)).ticks(4) == [], "a limit that small is meant to be reached"


def test_walsenders_have_their_own_limit() -> None:
    server = server_ticks(20, with_settings={"max_wal_senders": "10"})
    server.rows += server.pool(10, 7000, backend_type="walsender", user="replicator", database=None)
    server.ticks(4)
    assert server.only_one("connection-limit:server walsenders").evidence["used"] == 10
