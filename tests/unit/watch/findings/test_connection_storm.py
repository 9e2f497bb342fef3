"""Storms of connections: one application that opens them as fast as it can, and pools that merely start."""

from __future__ import annotations

from typing import Any

from dba_console.watch.connections.rules import FAMILY
from dba_console.watch.connections.slot_usage import ConnectionLimits
from dba_console.watch.findings.thresholds import Limits
from tests.unit.watch.findings.server_ticks import ServerTicks, server_ticks


def storm(server: ServerTicks, per_s: int, seconds: int, **fields: Any) -> None:
    """`per_s` new sessions a second of one application, each second a tick."""
    for second in range(seconds):
        made = {"application": "invoice-export", "user": "shop_jobs", "client": "[local]", **fields}
        pids = 10_000 + len(server.rows) + second
        new = server.pool(per_s, pids, backend_start=server.ago(0.5), state_change=server.ago(0.2), **made)
        server.rows = server.rows + new
        server.tick()


def test_a_storm_is_reported_in_its_third_second_with_client_and_origin() -> None:
    server = server_ticks(80)
    storm(server, 40, 2)
    row = server.only_one("connection-storm")
    assert row.severity == "warning"
    assert row.text.startswith("invoice-export (user shop_jobs) opened 80 connections in 1.0s from [local], 80 idle")
    assert row.evidence["opened"] == 80
    assert row.evidence["clients"] == ["[local]"]
    assert row.evidence["application"] == "invoice-export"


def test_a_storm_that_fills_the_server_is_one_finding_named_after_the_storm() -> None:
    server = server_ticks(80)
    storm(server, 40, 4)
    server.ticks(1)
    row = server.only_one("connection-storm")
    assert row.severity == "critical"
    assert row.chain == ["connections-filling", "connection-storm"]
    assert row.text.startswith("Connections fill (240 of 247 usable, 97%): invoice-export (user shop_jobs) opened 160")


def test_a_storm_is_info_until_half_of_the_usable_connections_are_used_and_then_a_warning() -> None:
    server = server_ticks(10)
    storm(server, 50, 2)
    assert server.only_one("connection-storm").severity == "info"
    storm(server, 20, 1)
    row = server.only_one("connection-storm")
    assert (row.severity, row.evidence["used"]) == ("warning", 130)


def test_a_storm_that_swings_around_half_changes_its_severity_once() -> None:
    server = server_ticks(10)
    storm(server, 57, 2)
    for _ in range(3):
        server.rows += server.pool(4, 40_000)
        server.tick()
        server.rows = server.rows[:-4]
        server.tick()
    assert [change.kind for change in server.changes] == ["raised", "changed"]


def test_a_pool_that_opens_at_once_on_an_idle_server_raises_no_alarm() -> None:
    server = server_ticks(13)
    server.rows += server.pool(96, 5000, backend_start=server.ago(0.5), application="shop-pool")
    server.ticks(30)
    assert {change.finding.severity for change in server.changes if change.kind != "cleared"} == {"info"}


def test_a_storm_starts_with_its_first_connection() -> None:
    server = server_ticks(80)
    began = server.ago(0.5)
    storm(server, 40, 3)
    assert abs(server.only_one("connection-storm").since_us - began) < 1_000_000


def test_a_storm_stays_while_its_connections_are_open_and_the_server_is_full() -> None:
    server = server_ticks(80)
    storm(server, 40, 4)
    server.ticks(300)
    assert server.only_one("connection-storm").chain == ["connections-filling", "connection-storm"]
    server.rows = server.rows[:100]
    assert server.ticks(60) == []


def test_a_storm_ends_when_others_use_its_former_slots() -> None:
    server = server_ticks(80)
    storm(server, 40, 4)
    server.ticks(20)
    server.rows = [*server.pool(80), *server.pool(160, 5000, application="shop-web")]
    server.ticks(40)
    server.only_one("connections-filling")


def test_a_storm_of_many_names_and_one_user_is_reported_by_the_user() -> None:
    server = server_ticks(80)
    for second in range(3):
        for number in range(30):
            name = f"worker-{second}-{number}"
            pid = 20_000 + second * 100 + number
            server.rows += server.pool(1, pid, backend_start=server.ago(0.5), application=name, user="batch")
        server.tick()
    assert server.only_one("connection-storm").text.startswith("user batch opened 60 connections")


def test_a_pool_of_twenty_is_not_a_storm() -> None:
    server = server_ticks(80)
    storm(server, 20, 1)
    server.ticks(20)
    assert server.raised == []


def test_growth_of_many_applications_at_once_is_not_a_storm_of_one() -> None:
    server = server_ticks(80)
    for number in range(12):
        pid = 20_000 + number * 10
        name = f"app-{number}"
        server.rows += server.pool(5, pid, backend_start=server.ago(0.5), application=name, user=name)
    server.ticks(3)
    assert server.raised == []


def test_short_sessions_are_not_a_storm() -> None:
    server = server_ticks(80)
    for second in range(20):
        new = server.pool(40, 20_000 + 40 * second, backend_start=server.ago(0.5), application="cgi")
        server.rows = [*server.rows[:80], *new]
        server.tick()
        if second == 0:
            assert server.raised == []
    assert server.raised == []


def test_sessions_from_before_the_first_reading_are_not_named_in_a_storm_of_others() -> None:
    server = ServerTicks(*FAMILY.rules)
    server.rows = server.pool(80, backend_start=server.ago(1), application="shop-web-pool")
    server.ticks(2)
    storm(server, 20, 3, application="shop-checkout")
    row = server.only_one("connection-storm")
    assert row.text.startswith("shop-checkout (user shop_jobs) opened")
    assert row.evidence["opened"] == 60


def test_a_server_clock_set_back_hides_no_storm() -> None:
    server = server_ticks(80)
    server.clock_us -= 3600 * 1_000_000
    storm(server, 40, 3)
    server.only_one("connection-storm")


def test_the_thresholds_of_a_storm_are_configurable() -> None:
    limits = Limits(ConnectionLimits(storm_least=10, storm_pct=4.0))
    server = server_ticks(80, limits)
    storm(server, 12, 1)
    server.only_one("connection-storm")
